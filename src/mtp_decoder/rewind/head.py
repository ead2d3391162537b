"""The head's rows: back to checkpoint + accepted + 1.

Before a round the head's cache has `checkpoint` rows. Drafting k tokens adds k rows, for the
anchor and all drafts but the last. With a of them accepted, the anchor's row and a more
stand: k - a - 1 rows are cut, and after a full accept one row is still missing, the last
draft's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from mlx_lm.models.cache import CacheList

from mtp_decoder.rewind.kv import cut_rows
from mtp_decoder.rewind.pooled import cut_pooled
from mtp_decoder.target import Layer, PooledLayer


def head_length(caches: Sequence[Any]) -> int:
    """Rows in the head's cache; the first layer's count."""
    first = caches[0]
    return first[0].offset if isinstance(first, CacheList) else first.offset


def cut_head(layers: Sequence[Layer], caches: Sequence[Any], length: int) -> None:
    """Cut every layer of the head to `length` rows; no effect on one that has fewer.

    Layers are cut one by one, and so are the parts of an indexed one: after a pass that failed
    half-way they need not agree.
    """
    for layer, cache in zip(layers, caches, strict=True):
        if isinstance(cache, CacheList):  # of an indexed layer; a protocol is slow to ask
            cut_pooled(cache, length, cast("PooledLayer", layer).pooled_ratio)
        else:
            cut_rows(cache, min(length, cache.offset))
