"""Gated grouped-query attention over a growing cache.

    q, gate = split(W_q u);  q, k <- rope(norm(q)), rope(norm(W_k u))
    y = W_o (softmax(q k^T / sqrt(D)) v * sigmoid(gate))

(Hugging Face `Qwen3_5Attention`.) State: mlx-lm's `KVCache`, keys and values
[B, KV, n, D] with keys already rotated; or its `QuantizedKVCache`, whose rows are what every
query sees, those of its own call included.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from reference_models.config import HybridConfig
from reference_models.mlp import linear
from reference_models.norms import rms_norm
from reference_models.rope import rotate
from reference_models.weights import Fill, Tensor, Weights


class Projected(NamedTuple):
    """One call's queries [B, heads, T, D], keys and values [B, KV, T, D], gate [B, T, heads*D]."""

    queries: mx.array
    keys: mx.array
    values: mx.array
    gate: mx.array


class GatedProjections:
    """The projections every attention of the zoo shares."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Names and shapes of the weights."""
        h, d = config.hidden_size, config.head_dim
        heads, kv = config.num_attention_heads, config.num_key_value_heads
        return {
            "q_proj.weight": Tensor((heads * 2 * d, h), Fill.LOUD_MATRIX),
            "k_proj.weight": Tensor((kv * d, h), Fill.LOUD_MATRIX),
            "v_proj.weight": Tensor((kv * d, h), Fill.LOUD_MATRIX),
            "o_proj.weight": Tensor((h, heads * d), Fill.LOUD_MATRIX),
            "q_norm.weight": Tensor((d,), Fill.NORM_ABOUT_ZERO),
            "k_norm.weight": Tensor((d,), Fill.NORM_ABOUT_ZERO),
        }

    def __call__(self, x: mx.array, positions: mx.array) -> Projected:
        """Project x [B, T, H] at absolute positions [T]."""
        c, w = self._config, self._weights
        batch, length, _ = x.shape
        both = linear(x, w["q_proj.weight"]).reshape(batch, length, c.num_attention_heads, -1)
        queries, gate = mx.split(both, 2, axis=-1)
        keys = linear(x, w["k_proj.weight"]).reshape(batch, length, c.num_key_value_heads, -1)
        values = linear(x, w["v_proj.weight"]).reshape(batch, length, c.num_key_value_heads, -1)
        queries = rms_norm(queries, w["q_norm.weight"], c.rms_norm_eps)
        keys = rms_norm(keys, w["k_norm.weight"], c.rms_norm_eps)
        return Projected(
            rotate(queries.swapaxes(1, 2), positions, c.rotary_dim, c.rope_theta),
            rotate(keys.swapaxes(1, 2), positions, c.rotary_dim, c.rope_theta),
            values.swapaxes(1, 2),
            gate.reshape(batch, length, -1),
        )

    def output(self, mixed: mx.array, gate: mx.array) -> mx.array:
        """Gate and project mixed values [B, heads, T, D] to [B, T, H]."""
        batch, _, length, _ = mixed.shape
        flat = mixed.swapaxes(1, 2).reshape(batch, length, -1)
        return linear(flat * mx.sigmoid(gate), self._weights["o_proj.weight"])


def attend(queries: mx.array, keys: mx.array, values: mx.array, allowed: mx.array) -> mx.array:
    """Softmax attention with grouped heads.

    Args:
        queries: [B, heads, T, D].
        keys: [B, KV, n, D].
        values: [B, KV, n, D].
        allowed: bool, broadcastable to [B, heads, T, n]; every query needs one allowed key.

    Returns:
        [B, heads, T, D] in the dtype of `values`.
    """
    batch, heads, length, dim = queries.shape
    grouped = queries.reshape(batch, keys.shape[1], -1, length, dim)
    scores = (grouped @ keys[:, :, None].swapaxes(-1, -2)).reshape(batch, heads, length, -1)
    scores = scores.astype(mx.float32) * dim**-0.5
    share = mx.softmax(mx.where(allowed, scores, -mx.inf), axis=-1).astype(values.dtype)
    share = share.reshape(batch, keys.shape[1], -1, length, share.shape[-1])
    return (share @ values[:, :, None]).reshape(batch, heads, length, dim)


def plain_rows(rows: Any, cache: KVCache | QuantizedKVCache) -> mx.array:
    """Keys or values [B, KV, n, D] as they are read: what was quantised is made dense again."""
    if not isinstance(cache, QuantizedKVCache):
        return cast("mx.array", rows)
    return mx.dequantize(*rows, group_size=cache.group_size, bits=cache.bits)


class FullAttention:
    """Causal attention over everything before."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._projections = GatedProjections(config, weights)

    tensors = staticmethod(GatedProjections.tensors)

    @staticmethod
    def make_cache() -> KVCache:
        """An empty cache."""
        return KVCache()

    def __call__(self, x: mx.array, cache: KVCache | QuantizedKVCache) -> mx.array:
        """Map x [B, T, H] to [B, T, H]; append T rows to the cache."""
        positions = cache.offset + mx.arange(x.shape[1])
        projected = self._projections(x, positions)
        rows = cache.update_and_fetch(projected.keys, projected.values)
        keys, values = (plain_rows(part, cache) for part in rows)
        allowed = mx.arange(keys.shape[2])[None, :] <= positions[:, None]
        mixed = attend(projected.queries, keys, values, allowed)
        return self._projections.output(mixed, projected.gate)
