"""Cap: K is held to 1, 2, 4 or one block in one place, and right below that."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList

from mtp_decoder.generate import emit
from mtp_decoder.rewind import pooled
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.rewind.ring import RingUndo
from tests.faults.editing import Rewind, edit, wrap_undos
from tests.faults.fault import Claim, Family, Fault, Shot, one_round, places, shot

RECURRENT = places("layers", range(5), "conv", "recurrent", "ngram", "ple_conv")


def _window_of(most: int, patch: pytest.MonkeyPatch) -> None:
    """The recurrence goes back by so many positions at most; nobody looks at its answer."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, RecurrentUndo):
            return None
        return lambda keep: rewind(keep) if undo.tokens.shape[1] - keep <= most else None

    wrap_undos(patch, wrap)


def _record_of(most: int, patch: pytest.MonkeyPatch) -> None:
    """What is kept for a rewind has room for so many positions; later ones are lost."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        return (lambda keep: rewind(min(keep, most))) if isinstance(undo, RecurrentUndo) else None

    wrap_undos(patch, wrap)


def _one_block(patch: pytest.MonkeyPatch) -> None:
    """A rewind takes back the last pooled block and no earlier one."""
    cut_pooled = pooled.cut_pooled

    def faulty(cache: CacheList, length: int, ratio: int) -> None:
        rows: mx.array | None = cache[2][0]
        cut_pooled(cache, length, ratio)
        if rows is not None and rows.shape[1] > length // ratio:
            cache[2][0] = rows[:, : rows.shape[1] - 1]

    patch.setattr(pooled, "cut_pooled", faulty)


def _ring_of(most: int, patch: pytest.MonkeyPatch) -> None:
    """The rows a ring lost are kept for so many positions."""
    rewind = RingUndo.rewind

    def faulty(self: Any, keep: int) -> None:
        rewind(self, min(keep, most) if keep else 0)

    patch.setattr(RingUndo, "rewind", faulty)


def _recurrent(name: str, ids: tuple[str, ...], apply: Any, *shots: Shot) -> Fault:
    return Fault(
        id=name,
        family=Family.CAP,
        kind="R",
        ids=ids,
        invariant="I2",
        claim=Claim.STATE,
        shots=shots,
        apply=apply,
        breaks=RECURRENT,
    )


FAULTS = (
    _recurrent(
        "recurrent-window-of-2",
        ("R15",),
        partial(_window_of, 2),
        one_round("window", k=3, accepted=0),
        one_round("ple", "rerun", k=4, accepted=1),
    ),
    _recurrent(
        "recurrent-window-of-4",
        ("R15",),
        partial(_window_of, 4),
        one_round("window", k=5, accepted=0),
    ),
    _recurrent(
        "recurrent-record-of-4",
        (),
        partial(_record_of, 4),
        one_round("window", k=5, accepted=4),
    ),
    _recurrent(
        "recurrent-record-of-9",
        (),
        partial(_record_of, 9),
        shot("rewind.depth.deepest", "window"),
    ),
    Fault(
        id="ring-record-of-2",
        family=Family.CAP,
        kind="W",
        ids=(),
        invariant="I2",
        claim=Claim.STATE,
        shots=(one_round("window", k=4, accepted=2, prompt=9),),
        apply=partial(_ring_of, 2),
        breaks=places("layers", (0,), "keys", "values", "offset"),
    ),
    Fault(
        id="pooled-blocks-one-at-a-time",
        family=Family.CAP,
        kind="X",
        ids=("X10",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(
            one_round("qsa", k=8, accepted=0, prompt=3),
            one_round("flash-next", k=8, accepted=0, prompt=6),
        ),
        apply=_one_block,
        breaks=places("layers", (1, 3), "pooled") | places("head", (0,), "pooled"),
    ),
    Fault(
        id="emission-block-of-4",
        family=Family.CAP,
        kind="T",
        ids=("T9",),
        invariant="I6",
        claim=Claim.ANY,
        shots=(shot("emit.budget.tokens", "attn", k=5),),
        apply=lambda patch: edit(
            patch, emit, ("outcome.tokens[:count],", "outcome.tokens[: min(count, 4)],")
        ),
    ),
)
