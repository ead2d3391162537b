"""Ranks, ties and the gap at the cut."""

import mlx.core as mx
import numpy as np
import pytest

from reference_models.pooled import IndexedAttention, PooledIndex
from reference_models.ranking import gap_at_cut, ranks, top_k
from reference_models.weights import Weights
from reference_models.zoo import config_of
from tests.models.formulas import drawn, random
from tests.models.helpers import listed


@pytest.mark.parametrize("count", [1, 2, 7])
def test_ranks(count: int) -> None:
    """Without ties ranks are places in descending order."""
    scores = np.random.default_rng(count).permutation(count).astype(np.float32)
    expected = [sorted(scores, reverse=True).index(s) for s in scores]
    assert ranks(mx.array(scores)).tolist() == expected


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([1, 1, 1, 1], [0, 1]),
        ([0, 2, 1, 1], [1, 2]),
        ([0, 1, 2, 1], [2, 1]),
        ([0.0, -0.0, 0.0], [0, 1]),
        ([3, 3, 5, 3], [2, 0]),
    ],
)
def test_ties(scores: list[float], best: list[int]) -> None:
    """Of equal entries the one of the lowest index comes first."""
    assert top_k(mx.array(scores, mx.float32), 2).tolist() == best


def test_rows_are_independent() -> None:
    """Every row of the last axis is ranked by itself."""
    scores = mx.array([[[1.0, 2.0, 3.0]], [[3.0, 2.0, 1.0]]])
    assert ranks(scores).tolist() == [[[2, 1, 0]], [[0, 1, 2]]]


@pytest.mark.parametrize(
    ("scores", "k", "gap"),
    [([5, 1, 4], 1, 1.0), ([5, 1, 4], 2, 3.0), ([2, 2, 2], 1, 0.0), ([1, 2, 2, 0], 2, 1.0)],
)
def test_gap(scores: list[float], k: int, gap: float) -> None:
    """The gap at the cut is the k-th largest entry less the next one."""
    assert gap_at_cut(mx.array(scores, mx.float32), k).item() == gap


@pytest.mark.parametrize("k", [3, 4])
def test_nothing_to_cut(k: int) -> None:
    """Where no entry is cut the gap is infinite."""
    assert gap_at_cut(mx.zeros((2, 3)), k).tolist() == [float("inf")] * 2


def _index(silent: bool) -> PooledIndex:
    """An index whose queries are zero, so that all scores are; or as drawn."""
    config = config_of("qsa")
    weights = drawn(PooledIndex.tensors(config))
    rows = config.indexer_n_heads * config.indexer_head_dim
    both = mx.array(weights["index_qk_proj.weight"])
    if silent:
        both[:rows] = 0.0
    arrays = {name: weights[name] for name in PooledIndex.tensors(config)}
    return PooledIndex(config, Weights({**arrays, "index_qk_proj.weight": both}))


def _mask(index: PooledIndex, length: int = 20) -> list[list[bool]]:
    x = random(1, length, 32)
    return listed(index(x, mx.arange(length), IndexedAttention.make_cache())[0, 0])


@pytest.mark.parametrize("position", [11, 14, 15, 19])
def test_tied_blocks(position: int) -> None:
    """Of blocks with exactly equal scores those of the lowest index are selected."""
    row = _mask(_index(silent=True))[position]
    tail = range((position + 1) // 4 * 4, position + 1)
    assert [i for i, seen in enumerate(row) if seen] == [*range(8), *tail]


def test_blocks_without_ties() -> None:
    """Without ties it is not the first blocks that are selected."""
    assert any(not all(row[:8]) for row in _mask(_index(silent=False)))


def test_watched_gaps() -> None:
    """An index that is watched notes the gap of every query, infinite where nothing is cut."""
    index = _index(silent=True)
    index.watch_cut = True
    _mask(index)
    assert index.cut_gaps[0][0].tolist() == [float("inf")] * 11 + [0.0] * 9
