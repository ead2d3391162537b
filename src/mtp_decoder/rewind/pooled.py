"""Pooled index keys: raw keys are trimmed, complete blocks keep the very rows they had.

With r tokens a block, n kept tokens leave n // r pooled rows. Those are the first rows, as
they were; a block that lost a token is dropped even if it was complete, and is pooled again
from its raw keys when it completes again. The raw keys of the open block stay.
"""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.cache import CacheList

from mtp_decoder.rewind.kv import cut_rows
from mtp_decoder.target import Layer


def cut_pooled(cache: CacheList, length: int, ratio: int) -> None:
    """Cut keys, values and raw index keys to `length` rows, pooled rows to its blocks."""
    for rows in (cache[0], cache[1]):
        cut_rows(rows, min(length, rows.offset))
    pooled = cache[2][0]
    if pooled is not None:
        cache[2][0] = pooled[:, : length // ratio]


class PooledUndo:
    """Undo of `CacheList(KVCache, KVCache, ArraysCache(1))`."""

    def __init__(self, layer: Layer, cache: CacheList, ratio: int) -> None:
        self._layer = layer
        self._cache = cache
        self._ratio = ratio
        self._start: int = cache[0].offset

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass; nothing needs to be remembered."""
        return self._layer(x, tokens, self._cache)

    def rewind(self, keep: int) -> None:
        """Cut back to the first `keep` new positions."""
        cut_pooled(self._cache, self._start + keep, self._ratio)

    def nbytes(self) -> int:
        """Nothing is remembered."""
        return 0
