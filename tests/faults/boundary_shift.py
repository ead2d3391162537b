"""Boundary-shift: a restore or a trim that goes to the accepted index plus or minus one."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mtp_decoder import drafting
from mtp_decoder.drafting import Drafter
from mtp_decoder.rewind.kv import KVUndo
from mtp_decoder.rewind.pooled import PooledUndo
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.rewind.ring import RingUndo
from mtp_decoder.window import Window
from tests.faults.editing import Rewind, edit, wrap_undos
from tests.faults.fault import (
    HEAD,
    Claim,
    Family,
    Fault,
    Place,
    Shot,
    head_rows,
    one_round,
    places,
)

RECURRENT = places("layers", range(5), "conv", "recurrent", "ngram", "ple_conv")
ROWS = places("layers", range(6), "keys", "values", "offset")
INDEXED = places(
    "layers",
    (1, 3),
    *("keys", "values", "offset", "index_offset", "index_keys", "open_block", "pooled"),
)
When = Callable[[int, int], bool]
"""From positions kept and width of the pass to whether the fault acts."""


def _shift(kind: type, shift: int, when: When, patch: pytest.MonkeyPatch) -> None:
    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, kind):
            return None
        width: list[int] = []
        run = undo.run

        def running(x: Any, tokens: Any) -> Any:
            width[:] = [tokens.shape[1]]
            return run(x, tokens)

        undo.run = running
        return lambda keep: rewind(keep + shift if keep and when(keep, width[0]) else keep)

    wrap_undos(patch, wrap)


def _always(keep: int, width: int) -> bool:
    return keep < width


def _all_rejected(keep: int, width: int) -> bool:
    return keep == 1 < width


def _in_between(keep: int, width: int) -> bool:
    return 1 < keep < width


def _shifted(
    name: str,
    kind: type,
    shift: int,
    breaks: frozenset[Place],
    *shots: Shot,
    ids: tuple[str, ...] = (),
    when: When = _always,
    letter: str = "",
) -> Fault:
    return Fault(
        id=f"shift-{name}",
        family=Family.BOUNDARY_SHIFT,
        kind=letter or ids[0][0],
        ids=ids,
        invariant="I2",
        claim=Claim.STATE,
        shots=shots,
        apply=partial(_shift, kind, shift, when),
        breaks=breaks,
    )


def _back_after_full_accept(patch: pytest.MonkeyPatch) -> None:
    """A full accept restores the recurrence to the state before the last position."""
    run = Window.run

    def faulty(self: Any, tokens: Any) -> Any:
        out = run(self, tokens)
        if tokens.shape[1] > 1:
            for undo in self._undos:
                if isinstance(undo, RecurrentUndo) and self._strategy.value != "replay":
                    undo.rewind(tokens.shape[1] - 1)
        return out

    patch.setattr(Window, "run", faulty)


def _nothing_in_between(patch: pytest.MonkeyPatch) -> None:
    """A partial accept changes the count of kept positions and puts no state back."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, RecurrentUndo):
            return None
        return lambda keep: None if keep > 1 else rewind(keep)

    wrap_undos(patch, wrap)


def _conv_before(patch: pytest.MonkeyPatch) -> None:
    """The replay restores the recurrence; conv stays as it was recorded, before the pass."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, RecurrentUndo):
            return None

        def faulty(keep: int) -> None:
            rewind(keep)
            if keep > 1:
                undo.cache[0] = undo.before[0]

        return faulty

    wrap_undos(patch, wrap)


def _restore_to_the_start(patch: pytest.MonkeyPatch) -> None:
    """The snapshot from before the pass comes back; the accepted rows are not run again."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        return (lambda keep: rewind(0)) if isinstance(undo, RecurrentUndo) else None

    wrap_undos(patch, wrap)


def _never_to_the_start(patch: pytest.MonkeyPatch) -> None:
    """Undoing all positions of a pass restores what nothing wrote: it does nothing."""
    patch.setattr(RecurrentUndo, "restore", lambda _: None)


def _head_shift(shift: int, patch: pytest.MonkeyPatch) -> None:
    cut_head = drafting.cut_head

    def faulty(layers: Any, caches: Any, length: int) -> None:
        cut_head(layers, caches, length + shift)

    patch.setattr(drafting, "cut_head", faulty)


def _head(name: str, ids: tuple[str, ...], apply: Any, *shots: Shot) -> Fault:
    return Fault(
        id=name,
        family=Family.BOUNDARY_SHIFT,
        kind=ids[0][0],
        ids=ids,
        invariant="I5",
        claim=Claim.HEAD,
        shots=shots,
        apply=apply,
        breaks=HEAD,
    )


FAULTS = (
    _shifted(
        "recurrent-behind",
        RecurrentUndo,
        -1,
        RECURRENT,
        one_round("window", k=2, accepted=1),
        one_round("gdn+mlx-lm", "rerun", k=2, accepted=1),
        one_round("ple", "snapshot"),
        ids=("R3",),
    ),
    _shifted(
        "recurrent-ahead",
        RecurrentUndo,
        1,
        RECURRENT,
        one_round("window", k=2, accepted=1),
        one_round("window", "snapshot", k=2, accepted=0),
        one_round("flash-next", "rerun"),
        ids=("R3",),
    ),
    _shifted(
        "recurrent-when-all-is-rejected",
        RecurrentUndo,
        -1,
        RECURRENT,
        one_round("window", k=1, accepted=0),
        ids=("R16",),
        when=_all_rejected,
    ),
    _shifted(
        "recurrent-in-between",
        RecurrentUndo,
        1,
        RECURRENT,
        one_round("window", k=3, accepted=1),
        ids=("R3",),
        when=_in_between,
    ),
    _shifted("kv-behind", KVUndo, -1, ROWS, one_round("attn"), one_round("window"), letter="K"),
    _shifted("kv-ahead", KVUndo, 1, ROWS, one_round("attn"), one_round("window"), letter="K"),
    _shifted("ring-behind", RingUndo, -1, ROWS, one_round("window", prompt=9), letter="W"),
    _shifted("ring-ahead", RingUndo, 1, ROWS, one_round("window", prompt=9), letter="W"),
    _shifted("indexed-behind", PooledUndo, -1, INDEXED, one_round("qsa"), letter="X"),
    _shifted("indexed-ahead", PooledUndo, 1, INDEXED, one_round("flash-next"), letter="X"),
    Fault(
        id="shift-recurrent-after-full-accept",
        family=Family.BOUNDARY_SHIFT,
        kind="R",
        ids=("R3",),
        invariant="I2",
        claim=Claim.STATE,
        shots=(one_round("window", k=2, accepted=2), one_round("ple", "snapshot", k=2, accepted=2)),
        apply=_back_after_full_accept,
        breaks=RECURRENT,
    ),
    Fault(
        id="partial-commit-is-bookkeeping",
        family=Family.BOUNDARY_SHIFT,
        kind="R",
        ids=("R13",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(one_round("window"), one_round("flash-next", "rerun")),
        apply=_nothing_in_between,
        breaks=RECURRENT,
    ),
    Fault(
        id="conv-at-pre-record-value",
        family=Family.BOUNDARY_SHIFT,
        kind="V",
        ids=("V2",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(one_round("window"), one_round("gdn+mlx-lm", "rerun", accepted=2)),
        apply=_conv_before,
        breaks=places("layers", range(5), "conv"),
    ),
    Fault(
        id="restore-to-the-start",
        family=Family.BOUNDARY_SHIFT,
        kind="R",
        ids=("R16",),
        invariant="I2",
        claim=Claim.STATE,
        shots=(one_round("window", k=1, accepted=0), one_round("ple", "snapshot")),
        apply=_restore_to_the_start,
        breaks=RECURRENT,
    ),
    Fault(
        id="undo-of-a-whole-pass",
        family=Family.BOUNDARY_SHIFT,
        kind="R",
        ids=("R5",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(one_round("window", "replay", k=1, accepted=0), one_round("flash-next", "tape")),
        apply=_never_to_the_start,
        breaks=RECURRENT,
    ),
    _head(
        "head-trim-off-by-one",
        ("K1",),
        partial(_head_shift, -1),
        one_round("window"),
        one_round("gdn-mtp2"),
        one_round("flash-next"),
    ),
    _head(
        "head-trim-two-too-many",
        ("K1",),
        partial(_head_shift, -2),
        head_rows("window"),
        head_rows("gdn"),
    ),
    _head("head-row-too-many", ("H4",), partial(_head_shift, 1), one_round("window", accepted=0)),
    _head(
        "head-cursor-after-drafting",
        ("H4",),
        lambda patch: edit(
            patch,
            Drafter.draft,
            ("        self._checkpoint = self.length\n", ""),
            ("    self._next =", "    self._checkpoint = self.length\n    self._next ="),
        ),
        head_rows("window"),
        one_round("window", k=1, accepted=0),
    ),
    _head(
        "head-replay-at-the-boundary",
        ("K3",),
        lambda patch: edit(
            patch,
            Drafter._settle_on_target,
            ("self._checkpoint + 1)", "self._checkpoint + 1 - (accepted > 0))"),
            ("if self.length == self._checkpoint:", "if not accepted and not drafts:"),
        ),
        head_rows("gdn"),
        head_rows("flash-next"),
    ),
)
