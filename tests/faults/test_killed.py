"""Every seeded fault is killed by a state case, in the layer and component it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_conformance.exactness import StateDiffers
from tests.faults import (
    head_trim_off_by_one,
    skip_kv_trim,
    skip_ple_rerun,
    skip_pooled_truncation,
    skip_slot_restore,
)
from tests.faults.fault import Fault

FAULTS = (
    skip_kv_trim.FAULT,
    skip_ple_rerun.FAULT,
    skip_slot_restore.CONV,
    skip_slot_restore.RECURRENT,
    skip_pooled_truncation.FAULT,
    head_trim_off_by_one.FAULT,
)
PAIRS = [pytest.param(f, c, id=f"{f.id}-{c.id}") for f in FAULTS for c in f.cells]


def _judge(cell: Cell, folder: Path) -> None:
    """Run the state case on one cell, with oracles of its own."""
    oracles = Oracles(builtin.make_runtime(), builtin.zoo_materials(folder))
    state_case(oracles, cell, Witness())


@pytest.mark.parametrize(("fault", "cell"), PAIRS)
def test_fault_is_killed(
    fault: Fault, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faulty decoder fails the state case where the fault is."""
    fault.apply(monkeypatch)
    with pytest.raises(StateDiffers) as caught:
        _judge(cell, tmp_path)
    assert (caught.value.layer, caught.value.component) in fault.breaks


@pytest.mark.parametrize(
    "cell", sorted({c for f in FAULTS for c in f.cells}, key=lambda c: c.id), ids=lambda c: c.id
)
def test_decoder_without_the_fault_passes(cell: Cell, tmp_path: Path) -> None:
    """The unedited decoder passes the very cells that kill the faults."""
    _judge(cell, tmp_path)
