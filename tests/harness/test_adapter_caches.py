"""Caches of other runtimes' classes in the canonical layout, by what they hold."""

from types import SimpleNamespace

import mlx.core as mx
import pytest

from mtp_conformance.adapters.caches import components, index_arrays, state_of
from mtp_conformance.exactness import require_equal

ROWS = mx.arange(24, dtype=mx.float32).reshape(1, 1, 6, 4)


def test_attention_shows_live_rows_alone() -> None:
    """Rows past the offset are spare and no state."""
    cache = SimpleNamespace(keys=ROWS, values=ROWS + 1, offset=4)
    found = components(cache)
    due = {"keys": ROWS[:, :, :4], "values": ROWS[:, :, :4] + 1, "offset": mx.array(4, mx.int32)}
    assert require_equal(found, due, what="the live rows") == 3


def test_empty_attention_has_an_offset() -> None:
    """Nothing held: no rows are shown."""
    assert set(components(SimpleNamespace(keys=None, values=None, offset=0))) == {"offset"}


def test_recurrent_slots_by_name() -> None:
    """Two slots, or four of qwen4_exp; one that holds nothing is left out."""
    slots = [ROWS, None, ROWS, mx.array([[3, 4]], mx.int32)]
    found = components(SimpleNamespace(cache=slots))
    assert set(found) == {"conv", "ple_conv", "ngram"}
    assert found["ngram"].dtype == mx.int64


def test_index_rows_by_block() -> None:
    """Six raw rows of four a block: one whole block and an open one."""
    found = index_arrays(ROWS[:, 0], 4)
    shapes = {name: array.shape for name, array in found.items()}
    assert shapes == {"index_keys": (1, 1, 4, 4), "open_block": (1, 1, 2, 4), "index_offset": ()}


def test_state_names_and_copies() -> None:
    """Names carry the index, and arrays are no views into what the cache writes."""
    cache = SimpleNamespace(keys=ROWS, values=ROWS, offset=6)
    found = state_of([cache, SimpleNamespace(cache=[ROWS, ROWS])], "head")
    assert set(found) == {
        *(f"head.0.{name}" for name in ("keys", "values", "offset")),
        *(f"head.1.{name}" for name in ("conv", "recurrent")),
    }
    assert found["head.1.conv"] is not ROWS


def test_unknown_cache_is_named() -> None:
    """A cache of neither kind is an error, not an empty state."""
    with pytest.raises(TypeError, match="no canonical layout for a cache of class SimpleNamespace"):
        components(SimpleNamespace(blocks=3))
