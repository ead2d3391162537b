"""The prompt cache of target and head together, and the checks before one is used.

A list: the target's caches, the head's caches, and one `ArraysCache` with the residual at
the frontier, so that a later call can go on where this one stopped. Without a head the list
is what mlx-lm's `make_prompt_cache` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, QuantizedKVCache

from mtp_decoder.errors import CacheMismatchError
from mtp_decoder.quantised import KVQuantisation
from mtp_decoder.state import arrays_of
from mtp_decoder.target import Head, Layer, PooledLayer, Target
from mtp_decoder.window import forward


def make_prompt_cache(target: Target, head: Head | None = None) -> list[Any]:
    """An empty prompt cache for `Session` and `generate_step`."""
    if head is None:
        return target.make_cache()
    return [*target.make_cache(), *head.make_cache(), ArraysCache(size=1)]


def split(
    cache: Sequence[Any],
    target: Target,
    head: Head | None,
    quantisation: KVQuantisation | None = None,
) -> tuple[list[Any], list[Any], ArraysCache | None]:
    """Target's caches, head's caches, frontier; checks the number of entries and classes.

    With a quantisation an entry of keys and values may be plain still, or quantised so.

    Raises:
        CacheMismatchError: the list was not made for this target and head.
    """
    fresh = make_prompt_cache(target, head)
    if len(cache) != len(fresh):
        hint = "make it with mtp_decoder.make_prompt_cache(model, head)"
        raise CacheMismatchError(
            f"the prompt cache has {len(cache)} entries, this model needs {len(fresh)}; {hint}"
        )
    for index, (given, expected) in enumerate(zip(cache, fresh, strict=True)):
        kinds = [_parts(expected)]
        if quantisation is not None:
            kinds.append(_parts(quantisation.quantised(expected)))
        if _parts(given) not in kinds:
            raise CacheMismatchError(
                f"entry {index} of the prompt cache is a {_describe(given)}, "
                f"this model needs a {_describe(expected)}; it belongs to another model"
                + _other_bits(given, quantisation)
            )
    count = len(target.layers)
    if head is None:
        return list(cache), [], None
    return list(cache[:count]), list(cache[count:-1]), cache[-1]


def check_content(caches: Sequence[Any], target: Target) -> int:
    """Check a used cache's shapes and offsets; returns the number of tokens it holds.

    Raises:
        CacheMismatchError: a shape or dtype another model's, or layers that disagree.
    """
    if not arrays_of(caches):
        return 0
    probe = target.make_cache()
    mx.eval(forward(target, mx.array([[0]]), probe))
    return _check(caches, probe, target.layers, "layer")


def check_head_content(caches: Sequence[Any], target: Target, head: Head) -> int:
    """Check a used head cache as `check_content` does; returns the number of pairs it holds.

    Raises:
        CacheMismatchError: a shape or dtype another head's, or layers that disagree.
    """
    if not arrays_of(caches):
        return 0
    token, probe = mx.array([[0]]), head.make_cache()
    hidden = forward(target, token, target.make_cache())
    mx.eval(head(hidden, token, probe))
    return _check(caches, probe, head.layers, "head layer")


def _other_bits(cache: Any, quantisation: KVQuantisation | None) -> str:
    if not isinstance(cache, QuantizedKVCache):
        return ""
    return f", or to kv_bits and kv_group_size other than {_quantisation_of(quantisation)}"


def _quantisation_of(settings: Any) -> str:
    if settings is None:
        return "none"
    bits, size = settings.bits, settings.group_size
    return f"bits={bits}, group_size={size}"


def _check(caches: Sequence[Any], probe: Sequence[Any], layers: Sequence[Layer], what: str) -> int:
    """Compare shapes and dtypes with a probe's, and lengths with each other."""
    lengths: dict[int, int] = {}
    for index, (given, plain) in enumerate(zip(caches, probe, strict=True)):
        expected = _stored_like(given, plain)
        mine, theirs = _signature(given), _signature(expected)
        if mine != theirs:
            raise CacheMismatchError(
                f"{what} {index}'s cache holds {mine}, this model's holds {theirs}; "
                "it belongs to another model"
            )
        length, layer = _length(given), layers[index]
        if length is not None:
            lengths[index] = length
        if isinstance(given, CacheList) and isinstance(layer, PooledLayer):
            _check_pooled(given, layer.pooled_ratio, f"{what} {index}")
    if len(set(lengths.values())) > 1:
        raise CacheMismatchError(f"the cache's {what}s disagree on their length: {lengths}")
    return next(iter(lengths.values()), 0)


def _stored_like(given: Any, plain: Any) -> Any:
    """A probe's cache, with its rows quantised where the given cache's are."""
    if not isinstance(given, QuantizedKVCache):
        return plain
    return KVQuantisation(given.bits, given.group_size).quantised(plain)


def _check_pooled(cache: CacheList, ratio: int, where: str) -> None:
    """Keys, raw index keys and pooled rows of one layer go together."""
    rows, raw, pooled = cache.caches
    blocks = 0 if pooled[0] is None else pooled[0].shape[1]
    if rows.offset != raw.offset or blocks != raw.offset // ratio:
        raise CacheMismatchError(
            f"{where} disagrees on its length: {rows.offset} keys, {raw.offset} index keys, "
            f"{blocks} pooled rows of {ratio}"
        )


def _parts(cache: Any) -> list[Any]:
    if isinstance(cache, CacheList):
        return [_parts(part) for part in cache.caches]
    if isinstance(cache, QuantizedKVCache):
        return [type(cache).__name__, cache.bits, cache.group_size]
    size = len(cache.cache) if isinstance(cache, ArraysCache) else 0
    return [type(cache).__name__, size, getattr(cache, "max_size", 0)]


def _describe(cache: Any) -> str:
    if isinstance(cache, CacheList):
        return f"CacheList({', '.join(_describe(part) for part in cache.caches)})"
    name = type(cache).__name__
    if isinstance(cache, QuantizedKVCache):
        return f"{name}({_quantisation_of(cache)})"
    return f"{name}(size={len(cache.cache)})" if isinstance(cache, ArraysCache) else name


def _signature(cache: Any) -> list[tuple[tuple[int, ...], str]]:
    """Shapes without the axis that grows with the tokens, and dtypes."""
    if isinstance(cache, CacheList):
        rows, raw, pooled = cache.caches
        index = raw.keys if pooled[0] is None else pooled[0]
        entry = ((index.shape[0], index.shape[-1]), str(index.dtype))
        return [*_signature(rows), *_signature(raw), entry]
    slots = isinstance(cache, ArraysCache)
    return [
        (array.shape if slots else array.shape[:2] + array.shape[3:], str(array.dtype))
        for array in arrays_of([cache])
    ]


def _length(cache: Any) -> int | None:
    if isinstance(cache, CacheList):
        return _length(cache.caches[0])
    return None if isinstance(cache, ArraysCache) else cache.offset
