"""mlx-lm's models: a recurrence taken apart for the tape is the recurrence in one call."""

from collections.abc import Callable

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder.qwen.load import Loaded
from mtp_decoder.qwen.target import LinearLayer
from mtp_decoder.target import Slots
from tests.decoder.helpers import frozen

MODELS = ("gdn", "gdn-moe", "gdn-next")
WIDTHS = (5, 1, 3)


def _inputs(width: int) -> tuple[mx.array, mx.array]:
    return (
        mx.random.normal((1, width, 32), key=mx.random.key(width)),
        mx.zeros((1, width), mx.int32),
    )


@pytest.fixture
def layer(request: pytest.FixtureRequest, qwen: Callable[[str], Loaded]) -> LinearLayer:
    """Return the first recurrent layer of the model a test names."""
    found = qwen(request.param).target.layers[0]
    assert isinstance(found, LinearLayer)
    return found


def _cache(layer: LinearLayer) -> ArraysCache:
    return ArraysCache(size=len(layer.slots))


@pytest.mark.parametrize("layer", MODELS, indirect=True)
def test_output_and_state(layer: LinearLayer) -> None:
    """Recording changes no bit of what a layer returns and of the state it leaves."""
    taped, plain = _cache(layer), _cache(layer)
    for width in WIDTHS:
        x, tokens = _inputs(width)
        out, _ = layer.record(x, tokens, taped)
        assert bits_equal(out, layer(x, tokens, plain)) is None
    require_equal(frozen([taped]), frozen([plain]), what="the state of the plain call")


@pytest.mark.parametrize("layer", MODELS, indirect=True)
def test_with_states(layer: LinearLayer) -> None:
    """Keeping the state after every position changes no bit either."""
    taped, plain = _cache(layer), _cache(layer)
    for width in WIDTHS:
        x, tokens = _inputs(width)
        out, _ = layer.record(x, tokens, taped, list[Slots]())
        assert bits_equal(out, layer(x, tokens, plain)) is None
    require_equal(frozen([taped]), frozen([plain]), what="the state of the plain call")


@pytest.mark.parametrize("layer", MODELS, indirect=True)
def test_the_states_kept(layer: LinearLayer) -> None:
    """The state kept after each position is the one a call to there leaves."""
    states: list[Slots] = []
    x, tokens = _inputs(5)
    layer.record(x, tokens, _cache(layer), states)
    for count, slots in enumerate(states, start=1):
        plain = _cache(layer)
        layer(x[:, :count], tokens[:, :count], plain)
        kept = ArraysCache(size=len(slots))
        kept.cache = list(slots)
        require_equal(frozen([kept]), frozen([plain]), what=f"a call over {count} positions")
    assert len(states) == 5


@pytest.mark.parametrize("way", ["advance", "advance_tape"])
@pytest.mark.parametrize("layer", MODELS, indirect=True)
def test_advancing_alone(layer: LinearLayer, way: str) -> None:
    """Advancing the state alone, by inputs or by tape, leaves the state of the plain call."""
    alone, plain = _cache(layer), _cache(layer)
    for width in WIDTHS:
        x, tokens = _inputs(width)
        _, tape = layer.record(x, tokens, plain)
        if way == "advance":
            layer.advance(x, tokens, alone)
        else:
            layer.advance_tape(tape, tokens, alone)
    require_equal(frozen([alone]), frozen([plain]), what="the state of the plain call")
