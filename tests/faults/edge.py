"""Edge-write: rows dropped or kept at the wrap of a ring, the edge of a block, of a buffer."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList

from mtp_decoder.errors import RewindError
from mtp_decoder.rewind import kv, pooled
from mtp_decoder.rewind.kv import KVUndo
from mtp_decoder.rewind.pooled import PooledUndo
from mtp_decoder.rewind.ring import RingUndo, temporal_rows
from mtp_decoder.window import Window
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Place, Shot, one_round, pairs, places, shot

RING = places("layers", (0,), "keys", "values", "offset")
POOLED = places("layers", (1, 3), "pooled") | places("head", (0,), "pooled")
KV = places("layers", range(6), "keys", "values", "offset")


def _ring_noop_after_wrap(patch: pytest.MonkeyPatch) -> None:
    """A wrapped ring is left as it is."""
    rewind = RingUndo.rewind

    def faulty(self: Any, keep: int) -> None:
        if self._cache.offset < self._cache.max_size or not keep:
            rewind(self, keep)

    patch.setattr(RingUndo, "rewind", faulty)


def _ring_trimmed(patch: pytest.MonkeyPatch) -> None:
    """A full ring is trimmed like any cache; what the pass pushed out of its window stays lost."""

    def faulty(self: Any, keep: int) -> None:
        rows = temporal_rows(self._cache)
        if not keep or rows is None:
            rewind(self, keep)
            return
        size, lost = self._cache.max_size, self._cache.offset - self._start - keep
        keys, values = (part[:, :, -size:][:, :, : part.shape[2] - lost] for part in rows)
        keys, values = (part[:, :, : min(part.shape[2], size - lost)] for part in (keys, values))
        held = keys.shape[2]
        self._cache.state = (keys, values, self._start + keep, 0, size, held)

    rewind = RingUndo.rewind
    patch.setattr(RingUndo, "rewind", faulty)


def _ring_evicts(change: str, patch: pytest.MonkeyPatch) -> None:
    """A rewound ring keeps other rows than the newest of its size."""
    edit(patch, RingUndo.rewind, ("part[:, :, -cache.max_size :]", f"part[:, :, {change}]"))


def _ring_order(patch: pytest.MonkeyPatch) -> None:
    """Rows of a wrapped ring are read in the order of the buffer."""

    def faulty(cache: Any) -> Any:
        keys, values, _, _, _, index = cache.state
        if keys is None:
            return None
        if index < keys.shape[2] <= cache.offset:
            return keys, values
        return keys[:, :, :index], values[:, :, :index]

    patch.setattr("mtp_decoder.rewind.ring.temporal_rows", faulty)


def _target_of_the_first_layer(patch: pytest.MonkeyPatch) -> None:
    """All layers go back to what the first one's rows say, though its window has stopped."""
    init = Window.__init__

    def faulty(self: Any, target: Any, caches: Any, strategy: Any) -> None:
        init(self, target, caches, strategy)
        first = caches[0]
        rows = min(first.offset, getattr(first, "max_size", first.offset))
        for undo in self._undos:
            if isinstance(undo, KVUndo):
                undo._start = rows

    patch.setattr(Window, "__init__", faulty)


def _block_edge(shift: int, patch: pytest.MonkeyPatch) -> None:
    """Pooled rows are counted as if there were a token more or less."""
    edit(patch, pooled.cut_pooled, ("length // ratio", f"(length + {shift}) // ratio"))


def _folded(patch: pytest.MonkeyPatch) -> None:
    """A block that is done puts its pooled key in the place of its first raw one."""
    run = PooledUndo.run

    def faulty(self: Any, x: mx.array, tokens: mx.array) -> mx.array:
        rows = self._cache[2][0]
        had = 0 if rows is None else rows.shape[1]
        out = run(self, x, tokens)
        made = self._cache[2][0]
        for block in range(had, made.shape[1]):
            at = block * self._ratio
            self._cache[1].keys[:, :, at] = made[:, block : block + 1]
        return out

    patch.setattr(PooledUndo, "run", faulty)


def _nothing_counted(patch: pytest.MonkeyPatch) -> None:
    """One supported cache trims and returns nothing, which its caller takes for a failure.

    As it was reported: a plain reject raises. The round is then undone by the same trim, which
    fails again, so the session refuses every use: there is no state that a case could find wrong,
    and what notices is the error. `_nothing_counted_as_refused` is the same mistake made quietly.
    """

    def faulty(cache: CacheList, length: int, ratio: int) -> None:
        cut_pooled(cache, length, ratio)
        raise RewindError(f"a cache of {cache[1].offset} rows cannot be cut back to {length}")

    cut_pooled = pooled.cut_pooled
    patch.setattr(pooled, "cut_pooled", faulty)


def _nothing_counted_as_refused(patch: pytest.MonkeyPatch) -> None:
    """A cache that returns nothing from its trim counts as one that cannot be: it stays ahead."""

    def faulty(cache: CacheList, length: int, ratio: int) -> None:
        del cache, length, ratio

    patch.setattr(pooled, "cut_pooled", faulty)


def _grown_buffer(patch: pytest.MonkeyPatch) -> None:
    """Once its buffer has grown, keys and values are not cut any more."""
    cut_rows = kv.cut_rows

    def faulty(cache: Any, length: int) -> None:
        if cache.keys is None or cache.keys.shape[2] <= 256:
            cut_rows(cache, length)

    patch.setattr(kv, "cut_rows", faulty)


def _fault(
    name: str,
    ids: tuple[str, ...],
    apply: Any,
    breaks: frozenset[Place],
    *shots: Shot,
    kind: str = "",
    claim: Claim = Claim.STATE,
) -> Fault:
    return Fault(
        id=name,
        family=Family.EDGE_WRITE,
        kind=kind or ids[0][0],
        ids=ids,
        invariant="I1",
        claim=claim,
        shots=shots,
        apply=apply,
        breaks=breaks,
    )


FAULTS = (
    _fault(
        "wrapped-ring-is-left",
        ("W1",),
        _ring_noop_after_wrap,
        RING,
        one_round("window", prompt=6),
        pairs("window"),
    ),
    _fault("wrapped-ring-is-trimmed", ("W5",), _ring_trimmed, RING, one_round("window", prompt=7)),
    _fault(
        "ring-keeps-a-row-less",
        ("W2",),
        partial(_ring_evicts, "-(cache.max_size - 1) :"),
        RING,
        one_round("window", prompt=9),
    ),
    _fault(
        "ring-evicts-the-whole-block",
        ("W2",),
        partial(_ring_evicts, "keep:"),
        RING,
        one_round("window", prompt=5),
    ),
    _fault(
        "ring-read-in-buffer-order",
        (),
        _ring_order,
        RING,
        shot("rewind.depth.k-changes", "window", prompt=9),
        kind="W",
    ),
    _fault(
        "first-layer-says-where-to",
        ("K7",),
        _target_of_the_first_layer,
        KV,
        one_round("window", k=2, accepted=0, prompt=12),
    ),
    _fault(
        "block-closed-a-token-early",
        ("X2",),
        partial(_block_edge, 1),
        POOLED,
        one_round("qsa", k=2, accepted=0, prompt=6),
    ),
    _fault(
        "block-closed-a-token-late",
        (),
        partial(_block_edge, -1),
        POOLED,
        one_round("qsa", k=2, accepted=0, prompt=7),
        kind="X",
    ),
    _fault(
        "pooled-key-overwrites-a-raw-one",
        ("X1",),
        _folded,
        places("layers", (1, 3), "index_keys", "open_block"),
        one_round("qsa", k=3, accepted=0, prompt=6),
        one_round("flash-next", k=3, accepted=0, prompt=6),
    ),
    _fault(
        "trim-that-returns-nothing",
        ("K6",),
        _nothing_counted,
        frozenset(),
        one_round("qsa", k=1, accepted=0),
        claim=Claim.ANY,
    ),
    _fault(
        "trim-that-returns-nothing-is-refused",
        ("K6",),
        _nothing_counted_as_refused,
        places("layers", (1, 3), "keys", "values", "offset"),
        one_round("qsa", k=1, accepted=0),
    ),
    _fault(
        "grown-buffer-is-not-cut",
        (),
        _grown_buffer,
        KV,
        shot("rewind.long.random-accepts", "gdn"),
        kind="K",
    ),
)
