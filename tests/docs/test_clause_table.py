"""The table of clauses, as people read it."""

import runpy
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from mtp_conformance.case import Level
from mtp_conformance.clauses import Clause

DOCS = Path(__file__).parents[2] / "docs"
CLAUSES = (
    Clause("rewound-state", Level.MUST, "Nothing | is left.", "It would spoil.", ("R1", "R2")),
    Clause("fast", Level.SHOULD, "It is fast.", "Time.", (), no_case="Time is no verdict."),
)


def test_rows(snapshot: SnapshotAssertion) -> None:
    """Anchor, level, requirement, reason, cases or why there are none, and faults."""
    row = runpy.run_path(str(DOCS / "clauses.py"))["_clause_row"]
    assert "\n".join(row(clause, ()) for clause in CLAUSES) == snapshot
