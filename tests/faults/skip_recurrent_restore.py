"""The recurrent state stays at the end of the verify window."""

import pytest

from mtp_decoder.rewind.rerun import RerunUndo
from mtp_decoder.rewind.snapshot import SnapshotUndo
from mtp_decoder.rewind.tape import TapeUndo
from tests.faults.fault import Fault, leave_slot, one_reject


def _apply(patch: pytest.MonkeyPatch) -> None:
    for undo in (TapeUndo, RerunUndo, SnapshotUndo):
        leave_slot(patch, undo, "recurrent")


FAULT = Fault(
    id="skip-recurrent-restore",
    breaks=frozenset((f"layers.{layer}", "recurrent") for layer in (0, 1, 2, 3, 4)),
    cells=(
        one_reject("gdn", "tape"),
        one_reject("gdn", "rerun"),
        one_reject("gdn", "snapshot"),
        one_reject("gdn-next+mlx-lm", "tape"),
        one_reject("flash-next", "tape"),
    ),
    apply=_apply,
)
