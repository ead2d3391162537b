"""One slot of a recurrent layer stays at the end of the verify window."""

from functools import partial

import pytest

from mtp_decoder.rewind.rerun import RerunUndo
from mtp_decoder.rewind.snapshot import SnapshotUndo
from mtp_decoder.rewind.tape import TapeUndo
from tests.faults.fault import Fault, leave_slot, one_reject


def _apply(slot: str, patch: pytest.MonkeyPatch) -> None:
    for undo in (TapeUndo, RerunUndo, SnapshotUndo):
        leave_slot(patch, undo, slot)


def _fault(slot: str) -> Fault:
    return Fault(
        id=f"skip-{slot}-restore",
        breaks=frozenset((f"layers.{layer}", slot) for layer in (0, 1, 2, 3, 4)),
        cells=(
            one_reject("gdn", "tape"),
            one_reject("gdn", "rerun"),
            one_reject("gdn", "snapshot"),
            one_reject("gdn-next+mlx-lm", "tape"),
            one_reject("flash-next", "tape"),
        ),
        apply=partial(_apply, slot),
    )


CONV, RECURRENT = _fault("conv"), _fault("recurrent")
