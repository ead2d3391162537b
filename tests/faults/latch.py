"""Latch, stale key and slot origin: what one round leaves behind acts on the next."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder.drafting import Drafter
from mtp_decoder.rewind.kv import KVUndo
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.rewind.snapshot import SnapshotUndo
from mtp_decoder.rewind.tape import TapeUndo
from mtp_decoder.session import Session
from mtp_decoder.window import Window
from tests.faults.editing import Rewind, edit, wrap_undos
from tests.faults.fault import (
    FRONTIER,
    HEAD,
    Claim,
    Family,
    Fault,
    head_rows,
    k_changes,
    one_round,
    pairs,
    places,
    shot,
)

RECURRENT = places("layers", range(5), "conv", "recurrent", "ngram", "ple_conv")
ROWS = places("layers", range(6), "keys", "values", "offset")
_BY_CACHE = "_fault_state"


def _recurrent_undos(window: Any) -> list[Any]:
    return [undo for undo in window._undos if isinstance(undo, RecurrentUndo)]


def _never_consumed(patch: pytest.MonkeyPatch) -> None:
    """A reject sets how far to go back; every fully accepted round after it goes back too."""
    rewind = Window.rewind

    def faulty(self: Any, keep: int) -> None:
        width = self.width
        rewind(self, keep)
        for undo in _recurrent_undos(self):
            if keep < width:
                setattr(undo.cache, _BY_CACHE, width - keep)
            elif getattr(undo.cache, _BY_CACHE, 0):
                undo.rewind(max(width - getattr(undo.cache, _BY_CACHE), 0))

    patch.setattr(Window, "rewind", faulty)


def _nothing_to_undo(patch: pytest.MonkeyPatch) -> None:
    """A full accept marks the recurrence as committed, for good."""
    rewind = Window.rewind

    def faulty(self: Any, keep: int) -> None:
        undos = self._undos
        if 1 < keep == self.width:
            for undo in _recurrent_undos(self):
                setattr(undo.cache, _BY_CACHE, True)
        done = [u for u in _recurrent_undos(self) if getattr(u.cache, _BY_CACHE, False)]
        self._undos = [u for u in undos if u not in done]
        rewind(self, keep)
        self._undos = undos

    patch.setattr(Window, "rewind", faulty)


def _record_outlives(patch: pytest.MonkeyPatch) -> None:
    """The undo record of a cache's first round serves all later ones."""
    init = RecurrentUndo.__init__

    def faulty(self: Any, layer: Any, cache: Any) -> None:
        init(self, layer, cache)
        if not hasattr(cache, _BY_CACHE):
            setattr(cache, _BY_CACHE, self.before)
        self.before = getattr(cache, _BY_CACHE)

    patch.setattr(RecurrentUndo, "__init__", faulty)


def _rows_come_back(patch: pytest.MonkeyPatch) -> None:
    """A trim lowers the offset; the next append derives it anew from the rows there were."""
    init = KVUndo.__init__

    def faulty(self: Any, layer: Any, cache: Any) -> None:
        if cache.offset and getattr(cache, _BY_CACHE, 0) > cache.offset:
            cache.offset = getattr(cache, _BY_CACHE)
        setattr(cache, _BY_CACHE, 0)
        init(self, layer, cache)

    rewind = KVUndo.rewind

    def remembering(self: Any, keep: int) -> None:
        setattr(self._cache, _BY_CACHE, self._cache.offset)
        rewind(self, keep)

    patch.setattr(KVUndo, "__init__", faulty)
    patch.setattr(KVUndo, "rewind", remembering)


def _reads_slot_zero(patch: pytest.MonkeyPatch) -> None:
    """A plain step after a verify pass starts from the state after that pass's first row."""
    run = Window.run

    def faulty(self: Any, tokens: Any) -> Any:
        for undo in _recurrent_undos(self):
            kept = getattr(undo.cache, _BY_CACHE, None)
            if tokens.shape[1] == 1 and kept is not None:
                undo.cache.cache = list(kept)
            setattr(undo.cache, _BY_CACHE, None)
        out = run(self, tokens)
        for undo in _recurrent_undos(self):
            if tokens.shape[1] > 1 and hasattr(undo, "states"):
                setattr(undo.cache, _BY_CACHE, undo.states[0])
        return out

    patch.setattr(Window, "run", faulty)


def _tape_of_another_round(patch: pytest.MonkeyPatch) -> None:
    """A tape is kept by its width and used again by every pass as wide."""
    run = TapeUndo.run

    def faulty(self: Any, x: mx.array, tokens: mx.array) -> mx.array:
        out = run(self, x, tokens)
        kept: dict[int, Any] = getattr(self.cache, _BY_CACHE, {})
        self.tape = kept.setdefault(tokens.shape[1], self.tape)
        setattr(self.cache, _BY_CACHE, kept)
        return out

    patch.setattr(TapeUndo, "run", faulty)


def _weights_of_another_model(patch: pytest.MonkeyPatch) -> None:
    """What verifies is kept by the number of layers and outlives the model."""
    seen: dict[tuple[str, int], Any] = {}
    init = Window.__init__

    def faulty(self: Any, target: Any, caches: Any, strategy: Any) -> None:
        key = (type(target).__name__, len(target.layers))
        init(self, seen.setdefault(key, target), caches, strategy)

    patch.setattr(Window, "__init__", faulty)


def stale_head(patch: pytest.MonkeyPatch) -> None:
    """The head's first pass of a round is the one recorded in the first round."""
    draft = Drafter.draft

    def faulty(self: Any, *args: Any) -> Any:
        head = self._head
        calls = 0

        def replayed(hidden: Any, token: Any, caches: Any) -> Any:
            nonlocal calls
            made = head(hidden, token, caches)
            calls += 1
            kept: dict[int, Any] = self.__dict__.setdefault(_BY_CACHE, {})
            return kept.setdefault(calls, made)

        self._head = _Replaying(head, replayed)
        try:
            return draft(self, *args)
        finally:
            self._head = head

    patch.setattr(Drafter, "draft", faulty)


class _Replaying:
    """A head whose calls go elsewhere."""

    def __init__(self, head: Any, call: Any) -> None:
        self.layers = head.layers
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)


def _hidden_of_row(which: str, patch: pytest.MonkeyPatch) -> None:
    settle = Drafter.settle

    def faulty(self: Any, drafts: Any, accepted: int, verified: Any, **named: Any) -> None:
        settle(self, drafts, accepted, verified, **named)
        row = {"first": 0, "last": verified.shape[1] - 1, "before": max(accepted - 1, 0)}[which]
        self.hidden = verified[:, row : row + 1]

    patch.setattr(Drafter, "settle", faulty)


def _row_after_reject(patch: pytest.MonkeyPatch) -> None:
    """After a partial accept the next logits are a row of the pass before."""
    verify = Session.verify

    def faulty(self: Any, drafts: Any) -> Any:
        before, settled = self._verified, self._settled
        found = verify(self, drafts)
        if before is not None and settled is not None and settled.accepted < len(before.drafts):
            row = before.logits[settled.accepted + 1 : settled.accepted + 2]
            logits = mx.concatenate([row, found.logits[1:]])
            found = replace(found, logits=logits, verdict=None)
            self._verified = found
        return found

    patch.setattr(Session, "verify", faulty)


def _conv_of_slot_zero(patch: pytest.MonkeyPatch) -> None:
    """A rewind takes every slot from the state after the first row."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, RecurrentUndo):
            return None
        return lambda keep: rewind(min(keep, 1))

    wrap_undos(patch, wrap)


def _hidden(which: str, *shots: Any) -> Fault:
    return Fault(
        id=f"head-takes-the-{which}-row",
        family=Family.SLOT_ORIGIN,
        kind="H",
        ids=("H6",),
        invariant="I5",
        claim=Claim.HEAD,
        shots=shots,
        apply=lambda patch: _hidden_of_row(which, patch),
        breaks=FRONTIER | HEAD,
    )


FAULTS = (
    Fault(
        id="rollback-length-never-consumed",
        family=Family.LATCH,
        kind="R",
        ids=("R7",),
        invariant="I4",
        claim=Claim.STATE,
        shots=(pairs("window", k=1), pairs("gdn")),
        apply=_never_consumed,
        breaks=RECURRENT,
    ),
    Fault(
        id="full-accept-latches-no-undo",
        family=Family.LATCH,
        kind="R",
        ids=("R7",),
        invariant="I4",
        claim=Claim.STATE,
        shots=(pairs("window", k=1), pairs("ple", "snapshot")),
        apply=_nothing_to_undo,
        breaks=RECURRENT,
    ),
    Fault(
        id="undo-record-outlives-its-round",
        family=Family.LATCH,
        kind="W",
        ids=("W4",),
        invariant="I4",
        claim=Claim.STATE,
        shots=(pairs("window", k=1), k_changes("window")),
        apply=_record_outlives,
        breaks=RECURRENT,
    ),
    Fault(
        id="trimmed-rows-come-back",
        family=Family.LATCH,
        kind="K",
        ids=("K5",),
        invariant="I4",
        claim=Claim.STATE,
        shots=(pairs("attn", k=1), pairs("window", k=1)),
        apply=_rows_come_back,
        breaks=ROWS,
    ),
    Fault(
        id="plain-step-reads-slot-zero",
        family=Family.SLOT_ORIGIN,
        kind="R",
        ids=("R10",),
        invariant="I4",
        claim=Claim.STATE,
        shots=(k_changes("window", "snapshot"),),
        apply=_reads_slot_zero,
        breaks=RECURRENT,
    ),
    Fault(
        id="rewind-reads-slot-zero",
        family=Family.SLOT_ORIGIN,
        kind="R",
        ids=("R10",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(one_round("window"), one_round("ple", "snapshot")),
        apply=_conv_of_slot_zero,
        breaks=RECURRENT,
    ),
    Fault(
        id="snapshots-counted-in-blocks",
        family=Family.SLOT_ORIGIN,
        kind="L",
        ids=("L6",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(one_round("qsa", "snapshot"), one_round("flash-next", "snapshot", k=2, accepted=1)),
        apply=lambda patch: edit(
            patch, SnapshotUndo.rewind, ("self.states[keep - 1]", "self.states[(keep - 1) // 4]")
        ),
        breaks=RECURRENT,
    ),
    Fault(
        id="tape-of-another-round",
        family=Family.STALE_KEY,
        kind="R",
        ids=("R14",),
        invariant="I4",
        claim=Claim.STATE,
        shots=(pairs("window", k=1),),
        apply=_tape_of_another_round,
        breaks=RECURRENT,
    ),
    Fault(
        id="verify-keeps-the-first-model",
        family=Family.STALE_KEY,
        kind="N",
        ids=("N8",),
        invariant="I1",
        claim=Claim.STATE,
        before=(shot("control.rows.prefill-equals-steps", "gdn", k=3),),
        shots=(
            shot("control.rows.prefill-equals-steps", "gdn-agree", k=3),
            shot("lifecycle.fresh.after-others", "gdn", k=3),
        ),
        apply=_weights_of_another_model,
        breaks=places("layers", (0,), "conv", "recurrent"),
    ),
    _hidden("first", shot("head.rows.one-a-pair", "window"), head_rows("attn")),
    _hidden("last", one_round("window"), shot("head.rows.one-a-pair", "window")),
    _hidden("before", shot("head.rows.one-a-pair", "window"), head_rows("attn")),
    Fault(
        id="logits-of-the-row-after-a-reject",
        family=Family.LATCH,
        kind="T",
        ids=("T12",),
        invariant="I6",
        claim=Claim.ANY,
        shots=(
            shot("stream.greedy.guessed-drafts", "attn", k=2),
            pairs("attn", k=1),
        ),
        apply=_row_after_reject,
    ),
)
