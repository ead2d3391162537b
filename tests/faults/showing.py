"""The kill matrix for machines and for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtp_conformance import Verdict
from tests.faults.cases import known_cases
from tests.faults.fault import INVARIANTS, Fault
from tests.faults.matrix import Examined, Matrix

_ENDLESS = 10_000


def as_record(
    matrix: Matrix, not_seeded: Mapping[str, str], faults: Mapping[str, Fault]
) -> dict[str, Any]:
    """Everything, as JSON values."""
    located, placed = matrix.located
    return {
        "faults": [_fault(examined) for examined in matrix.examined],
        "survivors": matrix.survivors,
        "not_by_their_claim": matrix.unclaimed,
        "cells_that_let_pass": matrix.weak,
        "not_seeded": [{"id": id, "reason": reason} for id, reason in not_seeded.items()],
        "public": seeded_by(faults),
        "located": {"kills": located, "right": placed},
        "control": {
            "cells": len(matrix.control),
            "false_alarms": [
                {"cell": j.shot.id, "verdict": j.verdict.value, "message": j.message}
                for j in matrix.false_alarms
            ],
        },
        "seconds": round(matrix.seconds, 1),
        "holds": matrix.holds,
    }


def seeded_by(faults: Mapping[str, Fault]) -> dict[str, list[str]]:
    """Seeded faults by the public fault they stand for."""
    found: dict[str, list[str]] = {}
    for fault in faults.values():
        for id in fault.ids:
            found.setdefault(id, []).append(fault.id)
    return found


def _fault(examined: Examined) -> dict[str, Any]:
    fault, first = examined.fault, next(iter(examined.kills), None)
    verdicts: dict[str, str] = {}
    for judgement in examined.judgements:  # the strongest verdict of a case's cells
        if verdicts.get(judgement.shot.case) not in (Verdict.FAIL.value, Verdict.ERROR.value):
            verdicts[judgement.shot.case] = judgement.verdict.value
    return {
        "id": fault.id,
        "family": fault.family.value,
        "kind": fault.kind,
        "public": list(fault.ids),
        "claim": fault.claim.value,
        "killed": examined.killed,
        "by_its_claim": examined.noticed_by_its_claim,
        "by": list(dict.fromkeys(kill.shot.case for kill in examined.kills)),
        "not_tried": sorted(set(known_cases()) - set(verdicts)),
        "clauses": examined.clauses,
        "invariant": fault.invariant,
        "broken": INVARIANTS[fault.invariant],
        "layer": _place(examined)[0],
        "component": _place(examined)[1],
        "located": len(examined.located),
        "located_right": len(examined.placed),
        "seconds": None if examined.seconds is None else round(examined.seconds, 2),
        "cell": None if first is None else first.shot.id,
        "message": None if first is None else first.message,
        "cases": verdicts,
    }


def _place(examined: Examined) -> tuple[str | None, str | None]:
    for kill in examined.kills:
        if kill.component:
            return kill.layer or None, kill.component
    return None, None


def write(record: Mapping[str, Any], folder: Path) -> Path:
    """Write `faults.json` into a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "faults.json"
    file.write_text(json.dumps(record, indent=1) + "\n")
    return file


def as_text(matrix: Matrix, not_seeded: Mapping[str, str]) -> str:
    """A table of faults, what is not seeded and why, and the verdict."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    if not console.is_terminal:  # a pipe has no width, so nothing is folded
        console = Console(highlight=False, width=_ENDLESS)
        table = Table(box=box.MARKDOWN)
    for name in ("fault", "stands for", "family", "killed by", "where", "breaks"):
        table.add_column(name)
    table.add_column("s", justify="right")
    table.add_column("cases", justify="right")
    for examined in matrix.examined:
        table.add_row(*map(Text, _row(examined)))
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join([*lines, *_absent(not_seeded), *_verdict(matrix)]).strip("\n")


def _row(examined: Examined) -> Sequence[str]:
    fault = examined.fault
    first = next(iter(examined.kills), None)
    seconds = examined.seconds
    return (
        fault.id,
        " ".join(fault.ids) or fault.kind,
        fault.family.value,
        "SURVIVES" if first is None else first.shot.case,
        " ".join(part for part in _place(examined) if part),
        fault.invariant,
        "" if seconds is None else f"{seconds:.1f}",
        str(len({kill.shot.case for kill in examined.kills})),
    )


def _absent(not_seeded: Mapping[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for id, reason in not_seeded.items():
        by_reason.setdefault(reason, []).append(id)
    lines = [f"  {' '.join(ids)}: {reason}" for reason, ids in by_reason.items()]
    return [f"not seeded, {len(not_seeded)} public faults:", *lines] if lines else []


def _verdict(matrix: Matrix) -> list[str]:
    located, placed = matrix.located
    seconds = sorted(e.seconds for e in matrix.examined if e.seconds is not None)
    lines = [f"survivor: {id}" for id in matrix.survivors]
    said = [j for e in matrix.examined for j in e.judgements if j.verdict is Verdict.UNSUPPORTED]
    lines += [j.message for j in said if "cannot be seeded" in j.message]
    lines += [f"noticed, but not by a case of what it breaks: {id}" for id in matrix.unclaimed]
    lines += [f"lets its fault pass: {cell}" for cell in matrix.weak]
    lines += [f"false alarm: {j.shot.id}: {j.verdict} {j.message}" for j in matrix.false_alarms]
    share = f"{placed} of {located} kills that name a layer and component name the edited ones"
    killed = sum(e.killed for e in matrix.examined)
    median = f"{seconds[len(seconds) // 2]:.1f} s to the first kill at the median, " * bool(seconds)
    return [
        "",
        *lines,
        f"{killed} of {len(matrix.examined)} faults killed, {median}{share}; the unedited decoder "
        f"on the same cells: {len(matrix.false_alarms)} false alarms in {len(matrix.control)}; "
        f"{matrix.seconds:.0f} s",
    ]
