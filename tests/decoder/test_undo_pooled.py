"""Rewind of pooled index keys, around the ends of blocks."""

from collections.abc import Callable

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList

from mtp_conformance.exactness import require_equal
from mtp_decoder.rewind.pooled import PooledUndo, cut_pooled
from mtp_decoder.state import components
from reference_models.hybrid import HybridLayer
from tests.decoder.conftest import Zoo

WIDTH, RATIO = 6, 4


@pytest.fixture
def layer(zoo: Zoo) -> HybridLayer:
    """Return a layer with pooled index keys."""
    found = zoo("qsa")[0].layers[1]
    assert isinstance(found, HybridLayer)
    return found


@pytest.fixture
def rows() -> mx.array:
    """Return inputs [1, 32, H] for any number of positions."""
    return mx.random.normal((1, 32, 32), key=mx.random.key(7))


@pytest.fixture
def filled(layer: HybridLayer, rows: mx.array) -> Callable[[int], CacheList]:
    """Return a function that makes a cache of the first `count` positions."""

    def make(count: int) -> CacheList:
        cache = layer.make_cache()
        if count:
            layer(rows[:, :count], mx.zeros((1, count), mx.int32), cache)
        return cache

    return make


@pytest.mark.parametrize("keep", range(WIDTH + 1))
@pytest.mark.parametrize("before", [0, 3, 4, 5, 10, 11, 12])
def test_any_number_of_positions(
    layer: HybridLayer,
    rows: mx.array,
    filled: Callable[[int], CacheList],
    before: int,
    keep: int,
) -> None:
    """Keys, raw index keys and pooled rows are as if the other positions had never come."""
    cache = filled(before)
    undo = PooledUndo(layer, cache, RATIO)
    undo.run(rows[:, before : before + WIDTH], mx.zeros((1, WIDTH), mx.int32))
    undo.rewind(keep)
    expected = components(layer, filled(before + keep))
    require_equal(components(layer, cache), expected, what="no other positions")


@pytest.mark.parametrize("keep", range(WIDTH + 1))
def test_a_block_that_completes_again(
    layer: HybridLayer, rows: mx.array, filled: Callable[[int], CacheList], keep: int
) -> None:
    """A block that lost tokens is pooled from those that come in their place."""
    cache = filled(10)
    undo = PooledUndo(layer, cache, RATIO)
    undo.run(-rows[:, :WIDTH], mx.zeros((1, WIDTH), mx.int32))
    undo.rewind(keep)
    layer(rows[:, 10 + keep : 24], mx.zeros((1, 14 - keep), mx.int32), cache)
    kept = mx.concatenate([rows[:, :10], -rows[:, :keep], rows[:, 10 + keep : 24]], axis=1)
    expected = layer.make_cache()
    layer(kept, mx.zeros((1, 24), mx.int32), expected)
    what = "a cache of the kept and the later positions"
    require_equal(components(layer, cache), components(layer, expected), what=what)


@pytest.mark.parametrize(("length", "blocks"), [(13, 3), (12, 3), (11, 2), (8, 2), (3, 0)])
def test_blocks_left(filled: Callable[[int], CacheList], length: int, blocks: int) -> None:
    """N tokens leave n // r pooled rows: a block goes when it loses a token."""
    cache = filled(14)
    cut_pooled(cache, length, RATIO)
    assert cache[2][0].shape[1] == blocks


def test_pooled_rows_stay(filled: Callable[[int], CacheList]) -> None:
    """Rows of blocks that stay complete keep their bits."""
    cache = filled(14)
    before = {"pooled": mx.array(cache[2][0][:, :2])}
    cut_pooled(cache, 9, RATIO)
    require_equal({"pooled": cache[2][0]}, before, what="the rows before the cut")


def test_nothing_is_remembered(layer: HybridLayer, filled: Callable[[int], CacheList]) -> None:
    """Cutting pooled rows needs no memory."""
    assert PooledUndo(layer, filled(9), RATIO).nbytes() == 0
