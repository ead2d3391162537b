"""Session: the state handed out."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import frozen


@pytest.mark.parametrize("name", ["window", "ple", "qsa", "flash-next"])
def test_it_never_changes(decoding: Callable[..., Decoding], name: str) -> None:
    """A state that was handed out keeps its bits while the session goes on."""
    session = decoding(name).session
    held, twin = session.state(), session.fork()
    mx.eval(list(held.values()))
    for k in (3, 0, 2):
        session.round(k)
    require_equal(held, twin.state(), what="a fork made at the same time")


def test_reading_it_changes_nothing(decoding: Callable[..., Decoding]) -> None:
    """Reading the state leaves every byte of the caches as it was."""
    session, cache, *_ = decoding("flash-next")
    before = frozen(cache)
    mx.eval(list(session.state().values()))
    require_equal(frozen(cache), before, what="the caches before the reading")


COMPONENTS = {
    "window": ["keys", "offset", "values"],
    "ple": ["conv", "recurrent"],
    "gdn": ["conv", "recurrent"],
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_names_of_the_first_layer(decoding: Callable[..., Decoding], name: str) -> None:
    """A layer's arrays are named by the component they hold."""
    state = decoding(name).session.state()
    found = sorted(n.removeprefix("layers.0.") for n in state if n.startswith("layers.0."))
    assert found == COMPONENTS[name]


def test_shapes_of_a_pooled_layer(decoding: Callable[..., Decoding]) -> None:
    """A pooled layer of 13 tokens holds 3 blocks of 4, and one token in the open block."""
    state = decoding("flash-next").session.state()
    shapes = {n.rpartition(".")[2]: a.shape for n, a in state.items() if "layers.3." in n}
    assert shapes == {
        "offset": (),
        "keys": (1, 2, 13, 16),
        "values": (1, 2, 13, 16),
        "index_offset": (),
        "index_keys": (1, 1, 12, 16),
        "open_block": (1, 1, 1, 16),
        "pooled": (1, 3, 16),
    }


def test_slots_of_a_per_layer_embedding(decoding: Callable[..., Decoding]) -> None:
    """A layer with a per-layer embedding also holds its last ids and convolution rows."""
    state = decoding("flash-next").session.state()
    shapes = {n.rpartition(".")[2]: a.shape for n, a in state.items() if "layers.1." in n}
    assert shapes == {
        "conv": (1, 3, 64),
        "recurrent": (1, 4, 8, 8),
        "ngram": (1, 2),
        "ple_conv": (1, 9, 64),
    }


def test_a_window_holds_its_last_rows(decoding: Callable[..., Decoding]) -> None:
    """A ring shows its newest rows only, and the number of tokens it has seen."""
    state = decoding("window").session.state()
    assert state["layers.0.keys"].shape == (1, 2, 8, 16)
    assert state["layers.0.offset"].item() == 13
