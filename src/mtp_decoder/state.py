"""Caches as named arrays, in the canonical layout.

| component | shape | of |
|---|---|---|
| keys, values | [B, KV, n, D], oldest row first | attention; the newest `max_size` rows of a ring |
| index_keys | [B, 1, n, Di] raw rows of complete blocks | pooled index keys |
| open_block | [B, 1, n mod r, Di] raw rows after them | pooled index keys |
| pooled | [B, n // r, Di] | pooled index keys |
| conv, recurrent, ngram, ple_conv | the layer's `slots` | recurrence and PLE |
| offset | int32 scalar, rows or positions held | all but recurrence |

A component without rows is left out: what an empty cache has and what a cache cut back to
nothing has are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, RotatingKVCache

from mtp_decoder.rewind.ring import temporal_rows
from mtp_decoder.target import Layer, PooledLayer, RecurrentLayer


def named_state(layers: Sequence[Layer], caches: Sequence[Any], prefix: str) -> dict[str, mx.array]:
    """All arrays of all caches, named `{prefix}.{layer}.{component}`, as copies.

    Copies share memory with the caches until either side writes, and never change after.
    """
    return {
        f"{prefix}.{index}.{component}": mx.array(array)
        for index, (layer, cache) in enumerate(zip(layers, caches, strict=True))
        for component, array in components(layer, cache).items()
    }


def components(layer: Layer, cache: Any) -> dict[str, mx.array]:
    """The arrays of one cache by component."""
    if isinstance(cache, ArraysCache) and isinstance(layer, RecurrentLayer):
        pairs = zip(layer.slots, cache.cache, strict=True)
        return {name: array for name, array in pairs if array is not None}
    if isinstance(cache, CacheList) and isinstance(layer, PooledLayer):
        return _pooled(cache, layer.pooled_ratio)
    if isinstance(cache, RotatingKVCache):
        return _ring(cache)
    return _rows(cache)


def _rows(cache: Any) -> dict[str, mx.array]:
    found = {"offset": mx.array(cache.offset, mx.int32)}
    if cache.offset:
        parts = cache.keys_and_values()
        for name, part in zip(("keys", "values"), parts, strict=True):
            if isinstance(part, mx.array):
                found[name] = part
            else:  # quantised: packed rows, scales, biases
                suffixes = ("", "_scales", "_biases")
                found |= {name + s: a for s, a in zip(suffixes, part, strict=True)}
    return found


def _ring(cache: RotatingKVCache) -> dict[str, mx.array]:
    found = {"offset": mx.array(cache.offset, mx.int32)}
    rows = temporal_rows(cache) if cache.offset else None
    if rows is not None:
        found |= {
            name: part[:, :, -cache.max_size :]
            for name, part in zip(("keys", "values"), rows, strict=True)
        }
    return found


def _pooled(cache: CacheList, ratio: int) -> dict[str, mx.array]:
    found = _rows(cache[0])
    found["index_offset"] = mx.array(cache[1].offset, mx.int32)
    if cache[1].offset:
        raw, _ = cache[1].keys_and_values()
        whole = raw.shape[2] // ratio * ratio
        parts = {"index_keys": raw[:, :, :whole], "open_block": raw[:, :, whole:]}
        found |= {name: part for name, part in parts.items() if part.size}
    pooled = cache[2][0]
    if pooled is not None and pooled.size:
        found["pooled"] = pooled
    return found


def arrays_of(caches: Sequence[Any]) -> list[mx.array]:
    """Every array any cache holds, spare rows included, for evaluation and copying."""
    found: list[mx.array] = []
    for cache in caches:
        if isinstance(cache, CacheList):
            found += arrays_of(cache.caches)
        elif isinstance(cache, ArraysCache):
            found += [array for array in cache.cache if array is not None]
        elif cache.keys is not None:
            for part in (cache.keys, cache.values):
                found += [part] if isinstance(part, mx.array) else list(part)
    return [array for array in found if array.size]


def copy_cache(cache: Any) -> Any:
    """An independent copy of one cache.

    The arrays are new objects over the same memory; mlx writes into a copy of its own when
    memory is shared, so that neither side sees the other's later rows.
    """
    if isinstance(cache, CacheList):
        return CacheList(*(copy_cache(part) for part in cache.caches))
    twin = object.__new__(type(cache))
    for name, value in vars(cache).items():
        setattr(twin, name, _copy(value))
    return twin


def _copy(value: Any) -> Any:
    if isinstance(value, mx.array):
        return mx.array(value)
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return value
