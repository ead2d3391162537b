"""Rewind of a sliding window, around the place where its ring wraps."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import RotatingKVCache

from mtp_conformance.exactness import compare_states
from mtp_decoder.rewind.ring import RingUndo, temporal_rows
from mtp_decoder.state import components
from tests.models.helpers import listed

WINDOW = 8
FOLLOWING = ((1, 1, 1), (3, 1), (1, 4, 1, 1), (10, 1))


class Rows:
    """A layer that appends its input to the ring as keys, and its negative as values."""

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """Append x [1, T, 2]."""
        rows = x[:, None]
        cache.update_and_fetch(rows, -rows)
        return x


def _append(cache: RotatingKVCache, start: int, count: int) -> None:
    Rows()(_rows(start, count), _tokens(count), cache)


def _rows(start: int, count: int) -> mx.array:
    return mx.arange(2 * start, 2 * (start + count), dtype=mx.float32).reshape(1, count, 2)


def _tokens(count: int) -> mx.array:
    return mx.zeros((1, count), mx.int32)


def _filled(count: int, filling: str) -> RotatingKVCache:
    cache = RotatingKVCache(max_size=WINDOW)
    pieces = {"whole": [count], "steps": [1] * count, "both": [3] + [1] * (count - 3)}[filling]
    done = 0
    for piece in pieces:
        _append(cache, done, piece)
        done += piece
    return cache


def _state(cache: RotatingKVCache) -> dict[str, mx.array]:
    return components(Rows(), cache)


def _rewound(offset: int, filling: str, width: int, keep: int) -> RotatingKVCache:
    cache = _filled(offset, filling)
    undo = RingUndo(Rows(), cache)
    undo.run(_rows(offset + 50, width), _tokens(width))
    undo.rewind(keep)
    return cache


def _never_rewound(offset: int, filling: str, keep: int) -> RotatingKVCache:
    cache = _filled(offset, filling)
    for place in range(keep):
        _append(cache, offset + 50 + place, 1)
    return cache


@pytest.mark.parametrize("filling", ["whole", "steps", "both"])
@pytest.mark.parametrize("offset", range(5, 13))
def test_any_number_of_rows(offset: int, filling: str) -> None:
    """Whatever the width, also wider than the window, the ring is as if never overwritten."""
    differing = [
        (width, keep)
        for width in range(1, 10)
        for keep in range(width + 1)
        if compare_states(
            _state(_rewound(offset, filling, width, keep)),
            _state(_never_rewound(offset, filling, keep)),
        ).differing
    ]
    assert differing == []


@pytest.mark.parametrize("following", FOLLOWING)
@pytest.mark.parametrize("offset", range(5, 13))
def test_rows_that_follow(offset: int, following: tuple[int, ...]) -> None:
    """A rebuilt ring takes further rows, one or many at a time, as one never rewound."""
    differing: list[tuple[int, int, int]] = []
    for width, keep in ((1, 0), (3, 1), (4, 4), (9, 0), (9, 2), (9, 8)):
        pair = _rewound(offset, "both", width, keep), _never_rewound(offset, "both", keep)
        for place, count in enumerate(following):
            for cache in pair:
                _append(cache, 200 + 20 * place, count)
            if compare_states(_state(pair[0]), _state(pair[1])).differing:
                differing.append((width, keep, place))
    assert differing == []


@pytest.mark.parametrize("keep", range(4))
def test_an_empty_ring(keep: int) -> None:
    """A ring that was empty before the pass is rebuilt too, to empty if nothing is kept."""
    cache = RotatingKVCache(max_size=WINDOW)
    undo = RingUndo(Rows(), cache)
    undo.run(_rows(50, 3), _tokens(3))
    undo.rewind(keep)
    comparison = compare_states(_state(cache), _state(_never_rewound(0, "steps", keep)))
    assert (comparison.differing, cache.empty()) == ((), keep == 0)


@pytest.mark.parametrize(("first", "second"), [(6, 2), (3, 0), (9, 8)])
def test_a_second_time(first: int, second: int) -> None:
    """A ring can be rewound again to fewer rows."""
    cache = _filled(10, "both")
    undo = RingUndo(Rows(), cache)
    undo.run(_rows(60, 9), _tokens(9))
    undo.rewind(first)
    undo.rewind(second)
    expected = _state(_never_rewound(10, "both", second))
    assert compare_states(_state(cache), expected).differing == ()


@pytest.mark.parametrize("filling", ["whole", "steps", "both"])
@pytest.mark.parametrize("offset", range(3, 20))
def test_temporal_order(offset: int, filling: str) -> None:
    """Rows are read out oldest first, the newest window of them at least, wherever they lie."""
    rows = temporal_rows(_filled(offset, filling))
    assert rows is not None
    newest = [int(x) // 2 for x in listed(rows[0][0, 0, -WINDOW:, 0])]
    assert newest == list(range(offset))[-WINDOW:]


def test_bytes() -> None:
    """A window before the pass and the new rows are remembered, keys and values."""
    cache = _filled(12, "steps")
    undo = RingUndo(Rows(), cache)
    undo.run(_rows(12, 3), _tokens(3))
    assert undo.nbytes() == 2 * (WINDOW + 3) * 2 * 4
