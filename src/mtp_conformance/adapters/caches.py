"""Caches of mlx-lm's kinds, and of those derived from them, in the canonical layout.

By what they hold, not by class: every runtime has classes of its own of the same shape.
Needs the standard library and mlx alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

_SLOTS = ("conv", "recurrent", "ple_conv", "ngram")


def index_arrays(rows: mx.array, ratio: int) -> dict[str, mx.array]:
    """Raw index keys [B, n, Di] as complete blocks, the open block and their count.

    Args:
        rows: in temporal order.
        ratio: rows a block, `indexer_compress_ratio`.
    """
    held = rows.shape[1]
    whole = held // ratio * ratio
    parts = {"index_keys": rows[:, None, :whole], "open_block": rows[:, None, whole:]}
    shown = {name: mx.array(part) for name, part in parts.items() if part.size}
    return {**shown, "index_offset": mx.array(held, mx.int32)}


def state_of(caches: Sequence[Any], prefix: str = "layers") -> dict[str, mx.array]:
    """Every live array of caches, as copies, named `{prefix}.{index}.{component}`."""
    return {
        f"{prefix}.{index}.{name}": mx.array(array)
        for index, cache in enumerate(caches)
        for name, array in components(cache).items()
    }


def components(cache: Any) -> dict[str, mx.array]:
    """The live arrays of one cache.

    A recurrent cache is a list [conv, recurrent], in qwen4_exp followed by the PLE convolution's
    window and the n-gram; an attention cache has `keys`, `values` and `offset`, rows on axis 2.

    Raises:
        TypeError: a cache of neither kind; the message names its class.
    """
    slots = getattr(cache, "cache", None)
    if isinstance(slots, list) and not hasattr(cache, "keys"):
        pairs = zip(_SLOTS, slots, strict=False)
        found = {name: array for name, array in pairs if array is not None}
        return {n: a.astype(mx.int64) if n == "ngram" else a for n, a in found.items()}
    if hasattr(cache, "keys") and hasattr(cache, "offset"):
        offset = int(cache.offset)
        found = {"offset": mx.array(offset, mx.int32)}
        if offset and cache.keys is not None:
            found |= {"keys": cache.keys[..., :offset, :], "values": cache.values[..., :offset, :]}
        return found
    raise TypeError(f"no canonical layout for a cache of class {type(cache).__name__}")
