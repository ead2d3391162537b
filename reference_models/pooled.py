"""Attention over a selection made with pooled index keys (QSA).

Every r consecutive tokens form a block. A block's pooled key is the mean of its raw index
keys in float32, normalised, rotated at the block's first position. A query at position p
sees p+1 tokens, hence (p+1) // r complete blocks, and scores them

    score_b = sum_heads relu(iq . pooled_b) / sqrt(Di)

It attends to the tokens of the `budget / r` best blocks (ties to the lowest index) and to
the tail after the last complete block. A query whose own token completes a block keeps that
token only if the block is selected. (Hugging Face `Qwen4ExpTextQSAIndexer`.)

State: `CacheList(KVCache, KVCache, ArraysCache(1))`: keys and values [B, KV, n, D]; raw
index keys [B, 1, n, Di], un-normed and un-rotated, with zero-width values; pooled rows
[B, n // r, Di]. Pooled rows of complete blocks never change while their tokens stand.
"""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache

from reference_models.attention import GatedProjections, attend
from reference_models.config import HybridConfig
from reference_models.mlp import linear
from reference_models.norms import rms_norm
from reference_models.ranking import gap_at_cut, ranks
from reference_models.rope import rotate
from reference_models.weights import Fill, Tensor, Weights, prefixed


class PooledIndex:
    """Pools index keys and decides which keys a query may see."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights
        self.watch_cut = False
        self.cut_gaps: list[mx.array] = []

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Names and shapes of the weights."""
        dim = config.indexer_head_dim
        heads = config.indexer_n_heads + config.indexer_kv_heads
        return {
            "index_qk_proj.weight": Tensor((heads * dim, config.hidden_size), Fill.LOUD_MATRIX),
            "q_layernorm.weight": Tensor((dim,), Fill.NORM_ABOUT_ZERO),
            "k_layernorm.weight": Tensor((dim,), Fill.NORM_ABOUT_ZERO),
        }

    def __call__(self, x: mx.array, positions: mx.array, cache: CacheList) -> mx.array:
        """Advance the index by x [B, T, H] and return the selection, bool [B, 1, T, n]."""
        queries, raw = self._project(x, positions)
        empty = mx.zeros((*raw.shape[:-1], 0), raw.dtype)
        raw, _ = cache[1].update_and_fetch(raw, empty)
        pooled = self._extend(cache[2], raw)
        scores = self._score(queries, pooled)
        return self._select(scores, positions, raw.shape[2])

    def _project(self, x: mx.array, positions: mx.array) -> tuple[mx.array, mx.array]:
        """Index queries [B, I, T, Di], rotated, and raw index keys [B, 1, T, Di]."""
        c, w = self._config, self._weights
        both = linear(x, w["index_qk_proj.weight"])
        both = both.reshape(*x.shape[:2], -1, c.indexer_head_dim).swapaxes(1, 2)
        queries, raw = both[:, : c.indexer_n_heads], both[:, c.indexer_n_heads :]
        queries = rms_norm(queries, w["q_layernorm.weight"], c.rms_norm_eps)
        return rotate(queries, positions, c.rotary_dim, c.rope_theta), raw

    def _extend(self, cache: ArraysCache, raw: mx.array) -> mx.array:
        """Pool the blocks that became complete; returns all pooled rows [B, blocks, Di]."""
        c, ratio = self._config, self._config.indexer_compress_ratio
        batch, _, length, dim = raw.shape
        pooled = mx.zeros((batch, 0, dim), raw.dtype) if cache[0] is None else cache[0]
        have, complete = pooled.shape[1], length // ratio
        if complete > have:
            fresh = raw[:, 0, have * ratio : complete * ratio].reshape(batch, -1, ratio, dim)
            fresh = fresh.astype(mx.float32).mean(axis=2).astype(raw.dtype)
            fresh = rms_norm(fresh, self._weights["k_layernorm.weight"], c.rms_norm_eps)
            starts = mx.arange(have, complete) * ratio
            fresh = rotate(fresh[:, None], starts, c.rotary_dim, c.rope_theta)[:, 0]
            pooled = mx.concatenate([pooled, fresh], axis=1)
        cache[0] = pooled
        return pooled

    def _score(self, queries: mx.array, pooled: mx.array) -> mx.array:
        """Block scores, float32 [B, T, blocks]."""
        wide = queries.astype(mx.float32) @ pooled[:, None].astype(mx.float32).swapaxes(-1, -2)
        return mx.maximum(wide, 0).sum(axis=1) * self._config.indexer_head_dim**-0.5

    def _ranks(self, scores: mx.array) -> mx.array:
        """Rank of every block, the best first; of equal scores the lowest index first."""
        return ranks(scores)

    def _select(self, scores: mx.array, positions: mx.array, length: int) -> mx.array:
        """Turn block scores into allowed keys, bool [B, 1, T, n]."""
        ratio = self._config.indexer_compress_ratio
        keep = self._config.indexer_budget // ratio
        key = mx.arange(length)
        complete = ((positions + 1) // ratio)[:, None]  # [T, 1]
        tail = (key >= complete * ratio) & (key <= positions[:, None])  # [T, n]
        if scores.shape[-1] == 0:
            return tail[None, None]
        known = mx.arange(scores.shape[-1]) < complete
        scores = mx.where(known, scores, -1.0)  # real scores are never negative
        if self.watch_cut:
            gap = gap_at_cut(scores, keep)
            self.cut_gaps.append(mx.where(complete[:, 0] > keep, gap, mx.inf))
        chosen = (self._ranks(scores) < keep) & known  # [B, T, blocks]
        block = mx.minimum(key // ratio, scores.shape[-1] - 1)
        by_block = chosen[:, :, block] & (key < complete * ratio)
        return (by_block | tail)[:, None]


class IndexedAttention:
    """Gated attention restricted to what the pooled index selects."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._projections = GatedProjections(config, weights)
        self.index = PooledIndex(config, weights.at("indexer"))

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Names and shapes of the weights."""
        index = prefixed("indexer", PooledIndex.tensors(config))
        return {**GatedProjections.tensors(config), **index}

    @staticmethod
    def make_cache() -> CacheList:
        """Empty keys and values, raw index keys, pooled rows."""
        return CacheList(KVCache(), KVCache(), ArraysCache(size=1))

    def __call__(self, x: mx.array, cache: CacheList) -> mx.array:
        """Map x [B, T, H] to [B, T, H]; append T rows and the blocks they complete."""
        positions = cache[0].offset + mx.arange(x.shape[1])
        selected = self.index(x, positions, cache)
        projected = self._projections(x, positions)
        keys, values = cache[0].update_and_fetch(projected.keys, projected.values)
        mixed = attend(projected.queries, keys, values, selected)
        return self._projections.output(mixed, projected.gate)
