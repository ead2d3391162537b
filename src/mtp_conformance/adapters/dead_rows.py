"""Memory past the frontier of mlx-lm's caches, for the builtin adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, RotatingKVCache


def fill_dead_rows(caches: Sequence[Any], value: float) -> int:
    """Write a number into every row past the frontier; returns how many arrays had one.

    Slots of a recurrence have no such rows: they are replaced whole.
    """
    filled = 0
    for cache in caches:
        if isinstance(cache, CacheList):
            filled += fill_dead_rows(cache.caches, value)
        elif not isinstance(cache, ArraysCache) and cache.keys is not None:
            filled += sum(_fill(rows, _end(cache), value) for rows in (cache.keys, cache.values))
    return filled


def _end(cache: Any) -> int:
    """Row of the buffer behind the last one in use."""
    if not isinstance(cache, RotatingKVCache):
        return cache.offset
    held, index = cast("Any", cache).keys.shape[2], cache.state[-1]
    wrapped = index < held <= cache.offset  # the rows behind are the oldest, and in use
    return held if wrapped else index


def _fill(rows: Any, end: int, value: float) -> int:
    """Fill rows [B, KV, n, D] from `end` on, of each part of quantised ones."""
    if not isinstance(rows, mx.array):
        return sum(_fill(part, end, value) for part in rows)
    if not rows.size or end >= rows.shape[2]:
        return 0
    rows[..., end:, :] = mx.array(value).astype(rows.dtype)
    return 1
