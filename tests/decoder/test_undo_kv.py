"""Rewind of keys and values."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from mtp_conformance.exactness import require_equal
from mtp_decoder import RewindError
from mtp_decoder.rewind.kv import KVUndo, cut_rows
from mtp_decoder.state import components
from tests.decoder.helpers import untouched

WIDTH = 4


class Rows:
    """A layer that appends its input to the cache as keys, and its negative as values."""

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """Append x [1, T, 32]."""
        rows = x[:, None]
        cache.update_and_fetch(rows, -rows)
        return x


def _rows(start: int, count: int) -> mx.array:
    return mx.arange(start * 32, (start + count) * 32, dtype=mx.float32).reshape(1, count, 32)


def _make(kind: str) -> Any:
    return KVCache() if kind == "plain" else QuantizedKVCache(group_size=32, bits=8)


def _filled(kind: str, count: int) -> Any:
    cache = _make(kind)
    if count:
        Rows()(_rows(0, count), mx.zeros((1, count)), cache)
    return cache


@pytest.mark.parametrize("keep", range(WIDTH + 1))
@pytest.mark.parametrize("before", [0, 5, 254, 256])
@pytest.mark.parametrize("kind", ["plain", "quantised"])
def test_any_number_of_rows(kind: str, before: int, keep: int) -> None:
    """After a rewind the cache holds the rows it would hold had the others never come."""
    cache = _filled(kind, before)
    undo = KVUndo(Rows(), cache)
    undo.run(_rows(before, WIDTH), mx.zeros((1, WIDTH)))
    undo.rewind(keep)
    expected = _filled(kind, before + keep)
    require_equal(components(Rows(), cache), components(Rows(), expected), what="no other rows")


@pytest.mark.parametrize("keep", range(WIDTH + 1))
def test_rows_that_follow(keep: int) -> None:
    """Rows that come after a rewind lie right behind those kept."""
    cache = _filled("plain", 5)
    undo = KVUndo(Rows(), cache)
    undo.run(_rows(50, WIDTH), mx.zeros((1, WIDTH)))
    undo.rewind(keep)
    Rows()(_rows(90, 2), mx.zeros((1, 2)), cache)
    expected = mx.concatenate([_rows(0, 5), _rows(50, keep), _rows(90, 2)], axis=1)
    found = components(Rows(), cache)
    require_equal({"keys": found["keys"]}, {"keys": expected[:, None]}, what="the kept rows")


def test_nothing_is_remembered() -> None:
    """Trimming needs no memory."""
    undo = KVUndo(Rows(), _filled("plain", 5))
    undo.run(_rows(5, WIDTH), mx.zeros((1, WIDTH)))
    assert undo.nbytes() == 0


def test_more_rows_than_there_are() -> None:
    """A cache cannot be cut to more rows than it holds."""
    cache = _filled("plain", 5)
    with untouched([cache]), pytest.raises(RewindError, match=r"cache of 5 rows .* back to 6"):
        cut_rows(cache, 6)
