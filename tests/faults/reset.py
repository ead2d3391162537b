"""Skip-restore, the other way round: a rewind that wipes what it cannot cut back."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder.rewind.recurrent import RecurrentUndo
from tests.faults.editing import Rewind, wrap_undos
from tests.faults.fault import Claim, Family, Fault, Shot, one_round, places

EOS = 256


def _wiped(slot: str | None, value: Any, patch: pytest.MonkeyPatch) -> None:
    """After a rewind a slot, or every one, has another value; a number fills it."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, RecurrentUndo):
            return None

        def faulty(keep: int) -> None:
            rewind(keep)
            for i, name in enumerate(undo.layer.slots):
                if slot in (None, name) and undo.cache[i] is not None:
                    old = undo.cache[i]
                    undo.cache[i] = None if value is None else mx.full(old.shape, value, old.dtype)

        return faulty

    wrap_undos(patch, wrap)


def _fault(name: str, id: str, slot: str | None, value: Any, *shots: Shot) -> Fault:
    slots = (slot,) if slot else ("conv", "recurrent", "ngram", "ple_conv")
    return Fault(
        id=name,
        family=Family.SKIP_RESTORE,
        kind=id[0],
        ids=(id,),
        invariant="I1",
        claim=Claim.STATE,
        shots=shots,
        apply=partial(_wiped, slot, value),
        breaks=places("layers", range(5), *slots),
    )


FAULTS = (
    _fault("trim-empties-the-recurrence", "R2", None, None, one_round("window", k=2)),
    _fault("trim-zeroes-the-recurrence", "R2", "recurrent", 0, one_round("window", k=2)),
    _fault(
        "ngram-reset-to-end-of-text",
        "P2",
        "ngram",
        EOS,
        one_round("ple", k=3, accepted=0),
        one_round("flash-next", "rerun", k=3, accepted=0),
    ),
)
