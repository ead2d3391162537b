"""The lint of cases, clauses and faults finds what it is there for."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mtp_conformance.case import Case, Level
from mtp_conformance.catalogue import Catalogue, Confidence, Fault, Shows
from mtp_conformance.clause_lint import lint
from mtp_conformance.clauses import Clause

CASE = Case("a.b.c", "kept", Level.MUST, (), "A", "w", ("R1",), "0.1.0", "It holds.")
CLAUSE = Clause("kept", Level.MUST, "It holds.", "It broke.", ("R1",))
OTHER = Clause("not-yet", Level.MUST, "It holds.", "It broke.", (), "needs batch rows")
FAULT = Fault(
    "R1", "broken", "R", Confidence.OK, (Shows.STATE,), ("https://a",), "It broke.", "So.", "K=1."
)

PROBLEMS = {
    "no clause": (
        [replace(CASE, clause="kpet")],
        [replace(CLAUSE, no_case="none")],
        "case a.b.c: there is no clause `kpet`",
    ),
    "another level": (
        [replace(CASE, level=Level.SHOULD)],
        [CLAUSE],
        "case a.b.c: is a should, its clause kept a must",
    ),
    "fault of a case": ([replace(CASE, faults=("R2",))], [CLAUSE], "case a.b.c: there is no fault"),
    "neither case nor reason": (
        [CASE],
        [CLAUSE, replace(OTHER, no_case=None)],
        "clause not-yet: no case names it",
    ),
    "case and reason": (
        [CASE],
        [replace(CLAUSE, no_case="none")],
        "clause kept: has a case and says `no_case`",
    ),
    "fault of a clause": (
        [CASE],
        [CLAUSE, replace(OTHER, faults=("R2",))],
        "clause not-yet: there is no fault R2",
    ),
    "fault of nobody": ([CASE], [replace(CLAUSE, faults=())], "fault R1: belongs to no clause"),
}


def _lint(cases: Sequence[Case], clauses: Sequence[Clause]) -> tuple[str, ...]:
    named = {clause.anchor: clause for clause in clauses}
    return lint(cases, named, Catalogue({"R": "recurrent state"}, {"R1": FAULT}))


@pytest.mark.parametrize(("cases", "clauses", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_trips(cases: Sequence[Case], clauses: Sequence[Clause], problem: str) -> None:
    """A break of one rule is one problem, which names who breaks it."""
    (found,) = _lint(cases, clauses)
    assert found.startswith(problem)


def test_nothing_to_say() -> None:
    """Cases, clauses and faults that belong together are no problem."""
    assert not _lint([CASE], [CLAUSE, OTHER])
