"""Attention against its formula: full, sliding and selected keys."""

from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from reference_models.attention import FullAttention
from reference_models.config import HybridConfig
from reference_models.pooled import IndexedAttention
from reference_models.sliding import SlidingAttention
from reference_models.weights import Weights
from tests.models.formulas import (
    TINY,
    TOLERANCE,
    Array,
    drawn,
    gap,
    numbers,
    random,
    rms_norm,
    rotate,
    sigmoid,
    weight,
)
from tests.models.helpers import listed

LENGTH = 22
INDEXED = replace(TINY, indexer_n_heads=4)
Sees = Callable[[int, int], bool]


def _attention(c: HybridConfig, w: Weights, x: Array, sees: Sees) -> Array:
    """Gated attention of every position to those it sees, [T, H]."""
    heads, kv, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    both = (x @ weight(w, "q_proj.weight").T).reshape(len(x), heads, 2 * d)
    keys = (x @ weight(w, "k_proj.weight").T).reshape(len(x), kv, d)
    values = (x @ weight(w, "v_proj.weight").T).reshape(len(x), kv, d)
    queries = rms_norm(both[..., :d], weight(w, "q_norm.weight"))
    keys = rms_norm(keys, weight(w, "k_norm.weight"))
    for t in range(len(x)):
        for array, count in ((queries, heads), (keys, kv)):
            for h in range(count):
                array[t, h] = rotate(array[t, h], t, c.rotary_dim, c.rope_theta)
    mixed = np.zeros((len(x), heads, d))
    for t in range(len(x)):
        seen = [s for s in range(len(x)) if sees(t, s)]
        for h in range(heads):
            own = h * kv // heads
            share = np.exp(keys[seen, own] @ queries[t, h] / np.sqrt(d))
            mixed[t, h] = share @ values[seen, own] / share.sum()
    gated = mixed * sigmoid(both[..., d:])
    return gated.reshape(len(x), -1) @ weight(w, "o_proj.weight").T


def test_full() -> None:
    """Every position attends to all up to its own."""
    weights, x = drawn(FullAttention.tensors(TINY)), random(1, LENGTH, TINY.hidden_size)
    found = FullAttention(TINY, weights)(x, FullAttention.make_cache())
    expected = _attention(TINY, weights, numbers(x)[0], lambda t, s: s <= t)
    assert gap(found[0], expected) < TOLERANCE


@pytest.mark.parametrize("first", [0, 5, 13])
def test_sliding(first: int) -> None:
    """Every position attends to the last `sliding_window` positions, its own included."""
    weights, x = drawn(SlidingAttention.tensors(TINY)), random(1, LENGTH, TINY.hidden_size)
    layer = SlidingAttention(TINY, weights)
    cache = layer.make_cache()
    rows = [layer(x[:, t : t + 1], cache) for t in range(first)]
    found = mx.concatenate([*rows, layer(x[:, first:], cache)], axis=1)
    expected = _attention(TINY, weights, numbers(x)[0], lambda t, s: t - 8 < s <= t)
    assert gap(found[0], expected) < TOLERANCE


def _pooled(c: HybridConfig, w: Weights, x: Array) -> Array:
    """Pooled rows [T // r, Di]: mean of a block's raw keys, normed, turned at its start."""
    raw = (x @ weight(w, "index_qk_proj.weight").T)[:, c.indexer_n_heads * c.indexer_head_dim :]
    r = c.indexer_compress_ratio
    rows = [
        rms_norm(raw[b * r : (b + 1) * r].mean(0), weight(w, "k_layernorm.weight"))
        for b in range(len(x) // r)
    ]
    return np.stack([rotate(p, b * r, c.rotary_dim, c.rope_theta) for b, p in enumerate(rows)])


def _selection(c: HybridConfig, w: Weights, x: Array) -> list[set[int]]:
    """For every position the positions it sees."""
    pooled, r, dim = _pooled(c, w, x), c.indexer_compress_ratio, c.indexer_head_dim
    projected = x @ weight(w, "index_qk_proj.weight").T
    queries = projected[:, : c.indexer_n_heads * dim].reshape(len(x), c.indexer_n_heads, dim)
    queries = rms_norm(queries, weight(w, "q_layernorm.weight"))
    found: list[set[int]] = []
    for t in range(len(x)):
        turned = [rotate(q, t, c.rotary_dim, c.rope_theta) for q in queries[t]]
        blocks = range((t + 1) // r)
        score = {b: sum(max(0.0, q @ pooled[b]) for q in turned) for b in blocks}
        best = sorted(blocks, key=lambda b: (-score[b], b))[: c.indexer_budget // r]
        tail = range(len(blocks) * r, t + 1)
        found.append({b * r + i for b in best for i in range(r)} | set(tail))
    return found


def test_pooled_rows() -> None:
    """A block's pooled row is the mean of its raw keys, normed, turned at its first position."""
    weights = drawn(IndexedAttention.tensors(INDEXED))
    x, cache = random(1, LENGTH, INDEXED.hidden_size), IndexedAttention.make_cache()
    IndexedAttention(INDEXED, weights)(x, cache)
    expected = _pooled(INDEXED, weights.at("indexer"), numbers(x)[0])
    assert gap(cache[2][0][0], expected) < TOLERANCE


def test_selected_keys() -> None:
    """Every position sees the tokens of its best blocks, and the tail after the last one."""
    weights = drawn(IndexedAttention.tensors(INDEXED))
    x, cache = random(1, LENGTH, INDEXED.hidden_size), IndexedAttention.make_cache()
    mask = IndexedAttention(INDEXED, weights).index(x, mx.arange(LENGTH), cache)[0, 0]
    seen = [{s for s, allowed in enumerate(row) if allowed} for row in listed(mask)]
    assert seen == _selection(INDEXED, weights.at("indexer"), numbers(x)[0])


def test_indexed() -> None:
    """Attention over the selected keys is attention over nothing else."""
    weights, x = drawn(IndexedAttention.tensors(INDEXED)), random(1, LENGTH, INDEXED.hidden_size)
    found = IndexedAttention(INDEXED, weights)(x, IndexedAttention.make_cache())
    selected = _selection(INDEXED, weights.at("indexer"), numbers(x)[0])
    expected = _attention(INDEXED, weights, numbers(x)[0], lambda t, s: s in selected[t])
    assert gap(found[0], expected) < TOLERANCE
