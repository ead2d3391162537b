"""The rewind of every state, one file a kind.

| state | file | how |
|---|---|---|
| keys and values | `kv.py` | trim |
| sliding window | `ring.py` | rows the window lost are put back |
| pooled index keys | `pooled.py` | raw keys trimmed, complete blocks kept |
| recurrence, convolution, PLE | `tape.py`, `rerun.py`, `snapshot.py`, `replay.py` | by strategy |
| the head's rows | `head.py` | back to checkpoint + accepted + 1 |

An undo wraps one layer for one verify pass: `run` is the layer's forward pass with whatever
must be remembered, `rewind(keep)` puts the cache where it would be had only the first `keep`
positions ever been seen. A rewind can be followed by another one to fewer positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol, TypeGuard

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, QuantizedKVCache, RotatingKVCache

from mtp_decoder.errors import UnrewindableCacheError
from mtp_decoder.rewind.kv import KVUndo
from mtp_decoder.rewind.pooled import PooledUndo
from mtp_decoder.rewind.replay import ReplayUndo
from mtp_decoder.rewind.rerun import RerunUndo
from mtp_decoder.rewind.ring import RingUndo
from mtp_decoder.rewind.snapshot import SnapshotUndo
from mtp_decoder.rewind.tape import TapeUndo
from mtp_decoder.target import Layer, PooledLayer, RecurrentLayer


class Rewind(str, Enum):
    """How state that cannot be cut back is undone. All are bit-equal to each other.

    TAPE: replay the recurrence alone on its taped inputs; kilobytes a position.
    RERUN: run the mixer again on the layer's inputs; no expert runs.
    SNAPSHOT: keep the whole state after every position; megabytes a position.
    REPLAY: restore everything and decode the kept tokens again; the slow baseline.
    """

    TAPE = "tape"
    RERUN = "rerun"
    SNAPSHOT = "snapshot"
    REPLAY = "replay"


class Undo(Protocol):
    """One layer's part of a verify pass."""

    def run(self, x: mx.array, tokens: mx.array, /) -> mx.array:
        """The layer's forward pass over T positions: x [B, T, W] to [B, T, W]."""
        ...

    def rewind(self, keep: int, /) -> None:
        """Leave the cache as if only the first `keep` of the T positions had been seen."""
        ...

    def nbytes(self) -> int:
        """Bytes remembered for the rewind, without the state from before the pass."""
        ...


_ROWS = (KVCache, QuantizedKVCache)
_RECURRENT = {
    Rewind.TAPE: TapeUndo,
    Rewind.RERUN: RerunUndo,
    Rewind.SNAPSHOT: SnapshotUndo,
    Rewind.REPLAY: ReplayUndo,
}


_KINDS: dict[type, bool] = {}
"""Layer classes that were asked before: a protocol is looked up by every one of its names."""


def _is_recurrent(layer: Layer) -> TypeGuard[RecurrentLayer]:
    kind = type(layer)
    if kind not in _KINDS:
        _KINDS[kind] = isinstance(layer, RecurrentLayer)
    return _KINDS[kind]


def make_undo(index: int, layer: Layer, cache: Any, strategy: Rewind) -> Undo:
    """The undo of one layer's cache.

    Raises:
        UnrewindableCacheError: no rewind is known for this kind of cache.
    """
    # Plain steps make one a layer and token: the commonest first, and no union made anew.
    if isinstance(cache, ArraysCache) and _is_recurrent(layer):
        return _RECURRENT[strategy](layer, cache)
    if isinstance(cache, _ROWS):
        return KVUndo(layer, cache)
    if isinstance(cache, RotatingKVCache) and cache.keep == 0:
        return RingUndo(layer, cache)
    if isinstance(cache, CacheList) and isinstance(layer, PooledLayer):
        return PooledUndo(layer, cache, layer.pooled_ratio)
    raise UnrewindableCacheError(
        f"layer {index}: no rewind is known for a {type(cache).__name__} of a "
        f"{type(layer).__name__}; decode with num_draft_tokens=0"
    )


def check_head_rewindable(layers: Sequence[Layer], caches: Sequence[Any]) -> None:
    """Refuse a head whose rows cannot be cut, before anything is drafted.

    Raises:
        UnrewindableCacheError: names the first such layer of the head and its cache's class.
    """
    for index, (layer, cache) in enumerate(zip(layers, caches, strict=True)):
        if not isinstance(cache, _ROWS) and not (
            isinstance(cache, CacheList) and isinstance(layer, PooledLayer)
        ):
            raise UnrewindableCacheError(
                f"head layer {index}: no rewind is known for a {type(cache).__name__}; "
                "decode with num_draft_tokens=0"
            )


def check_rewindable(layers: Sequence[Layer], caches: Sequence[Any]) -> None:
    """Refuse caches no rewind is known for, before anything is decoded.

    Raises:
        UnrewindableCacheError: names the first such layer and its cache's class.
    """
    for index, (layer, cache) in enumerate(zip(layers, caches, strict=True)):
        make_undo(index, layer, cache, Rewind.TAPE)
