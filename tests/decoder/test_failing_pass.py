"""Session: a verify pass that fails in the middle of the layers."""

from collections.abc import Callable
from typing import Any

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from reference_models.hybrid import HybridLayer, LinearLayer
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import STRATEGIES, PlantedError, fail

# Every kind of layer, first, in the middle and last: ring, recurrence, keys, PLE, pooled keys.
LAYERS = [
    ("window", 0),
    ("window", 1),
    ("window", 2),
    ("ple", 2),
    ("qsa", 1),
    ("flash-next", 2),
    ("flash-next", 3),
]


def _plant(patch: pytest.MonkeyPatch, layer: Any, place: str) -> None:
    """Make the layer fail before its mixer, amid it, or once its state is advanced."""
    if place == "feed-forward":
        patch.setattr(layer, "mlp", fail)
    elif isinstance(layer, LinearLayer):
        patch.setattr(layer.mixer, "project" if place == "mixer" else "finish", fail)
    else:
        assert isinstance(layer, HybridLayer)
        attribute = (layer, "attention") if place == "mixer" else (layer.attention, "_projections")
        patch.setattr(*attribute, fail)


@pytest.mark.parametrize("place", ["mixer", "amid", "feed-forward"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("name", "index"), LAYERS)
def test_cancelling_it(
    fork: Callable[..., Session],
    zoo: Zoo,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    index: int,
    strategy: str,
    place: str,
) -> None:
    """Wherever a verify pass fails, cancelling the round leaves target and head as before it."""
    session, (target, _) = fork(name, rewind=strategy), zoo(name)
    before, length = session.state(), session.target_length
    with monkeypatch.context() as patch, pytest.raises(PlantedError):
        _plant(patch, target.layers[index], place)
        session.verify(session.draft(3))
    session.cancel()
    require_equal(session.state(), before, what="the state before the round")
    assert session.target_length == length


@pytest.mark.parametrize("part", ["embed", "logits"])
def test_outside_the_layers(
    decoding: Callable[..., Decoding], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A round whose embedding or output projection fails leaves no trace either."""
    session, _, target, _ = decoding("flash-next")
    before, length = session.state(), session.target_length
    with monkeypatch.context() as patch, pytest.raises(PlantedError):
        patch.setattr(target, part, fail)
        session.round(3)
    require_equal(session.state(), before, what="the state before the round")
    assert session.target_length == length
