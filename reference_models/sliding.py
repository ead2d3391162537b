"""Sliding-window attention: a query at position p sees positions p-W+1 .. p.

Everything but the visible keys is as in `reference_models.attention`. State: mlx-lm's
`RotatingKVCache` with `max_size = sliding_window`. Its rows lie in ring order after
one-token steps and in temporal order after longer calls; here every query gathers its own W
keys in temporal order, so that its result depends neither on that nor on how many queries
came with it.
"""

from __future__ import annotations

from typing import cast

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from reference_models.attention import GatedProjections
from reference_models.config import HybridConfig
from reference_models.weights import Weights

# Keys, values, offset, keep, max_size and the row to write next, of a ring with rows.
_RingState = tuple[mx.array, mx.array, int, int, int, int]


def temporal_rows(cache: RotatingKVCache) -> tuple[mx.array, mx.array]:
    """Keys and values [B, KV, n, D] in temporal order, newest last, no unused rows."""
    keys, values, offset, _, _, index = cast("_RingState", cache.state)
    size = keys.shape[2]
    if index < size and offset >= size:
        keys = mx.concatenate([keys[:, :, index:], keys[:, :, :index]], axis=2)
        values = mx.concatenate([values[:, :, index:], values[:, :, :index]], axis=2)
        return keys, values
    return keys[:, :, :index], values[:, :, :index]


class SlidingAttention:
    """Causal attention over the last `sliding_window` positions."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._window = config.sliding_window
        self._projections = GatedProjections(config, weights)

    tensors = staticmethod(GatedProjections.tensors)

    def make_cache(self) -> RotatingKVCache:
        """An empty ring of `sliding_window` rows."""
        return RotatingKVCache(max_size=self._window)

    def __call__(self, x: mx.array, cache: RotatingKVCache) -> mx.array:
        """Map x [B, T, H] to [B, T, H]; append T rows to the ring."""
        positions = cache.offset + mx.arange(x.shape[1])
        projected = self._projections(x, positions)
        cache.update_and_fetch(projected.keys, projected.values)
        keys, values = temporal_rows(cache)
        mixed = self._windows(projected.queries, keys, values, positions)
        return self._projections.output(mixed, projected.gate)

    def _windows(
        self, queries: mx.array, keys: mx.array, values: mx.array, positions: mx.array
    ) -> mx.array:
        """Attend each query [B, heads, T, D] to its own W rows of keys and values."""
        batch, heads, length, dim = queries.shape
        pad = [(0, 0), (0, 0), (self._window - 1, 0), (0, 0)]
        last = mx.arange(keys.shape[2] - length, keys.shape[2])  # row of each query's own key
        rows = last[:, None] + mx.arange(self._window)[None, :]  # [T, W], after the padding
        k = mx.pad(keys, pad)[:, :, rows]  # [B, KV, T, W, D]
        v = mx.pad(values, pad)[:, :, rows]
        grouped = queries.reshape(batch, keys.shape[1], -1, length, 1, dim)
        scores = (grouped @ k[:, :, None].swapaxes(-1, -2)).astype(mx.float32) * dim**-0.5
        seen = positions[:, None] - mx.arange(self._window - 1, -1, -1)[None, :] >= 0
        share = mx.softmax(mx.where(seen[:, None, :], scores, -mx.inf), axis=-1)
        return (share.astype(v.dtype) @ v[:, :, None]).reshape(batch, heads, length, dim)
