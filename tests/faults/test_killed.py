"""A few seeded faults are killed where they are; `nox -s faults` does that for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance import Oracles, Verdict
from mtp_conformance.adapters import builtin
from mtp_decoder.rewind.kv import cut_rows
from tests.faults import running
from tests.faults.cases import judge
from tests.faults.editing import edit
from tests.faults.fault import Fault
from tests.faults.matrix import Examined, Matrix
from tests.faults.registry import seeded
from tests.faults.running import Job, work

FAULTS = [
    seeded()[id]
    for id in (
        "skip-kv-trim-first",
        "skip-ngram-restore",
        "skip-pooled-truncation",
        "shift-ring-behind",
        "head-row-too-many",
        "plain-step-reads-slot-zero",
    )
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_fault_is_killed(fault: Fault, tmp_path: Path) -> None:
    """The faulty decoder fails where the fault is, and is whole again afterwards."""
    judgements = list(work(Job(fault.id, fault.shots, first_kill=True), tmp_path))
    assert judgements[-1].verdict is Verdict.FAIL
    assert (judgements[-1].layer, judgements[-1].component) in fault.breaks
    oracles = Oracles(builtin.make_runtime(), builtin.zoo_materials(tmp_path))
    assert judge(fault.shots[0], oracles).verdict is Verdict.PASS


def test_a_fault_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit whose text is gone from the decoder kills nothing: the fault survives."""

    def missing(patch: pytest.MonkeyPatch) -> None:
        edit(patch, cut_rows, ("no such text", ""))

    fault = replace(FAULTS[0], apply=missing)
    monkeypatch.setattr(running, "seeded", lambda: {fault.id: fault})
    (judgement,) = work(Job(fault.id, fault.shots), tmp_path)
    assert "cannot be seeded: EditError" in judgement.message
    assert Matrix((Examined(fault, [judgement]),), (), 0.0).survivors == [fault.id]
