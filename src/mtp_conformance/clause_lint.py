"""The lint that keeps cases, clauses and faults in step.

Every case names a clause and has its level; every clause has a case or says why none is possible;
every fault that is named exists and belongs to a clause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mtp_conformance.case import Case
from mtp_conformance.catalogue import FAULTS_FILE, Catalogue, read_catalogue
from mtp_conformance.clauses import CLAUSES_FILE, Clause, read_clauses
from mtp_conformance.suite import load_cases


def lint_suite(root: Path) -> tuple[str, ...]:
    """The problems of the suite under a root, none if all is well.

    Raises:
        SuiteError: a case file that cannot be imported.
        TomlError: a file that cannot be read.
    """
    return lint(
        [registration.case for registration in load_cases(root)],
        read_clauses(root / CLAUSES_FILE),
        read_catalogue(root / FAULTS_FILE),
    )


def lint(
    cases: Sequence[Case], clauses: Mapping[str, Clause], catalogue: Catalogue
) -> tuple[str, ...]:
    """The problems of these cases, clauses and faults; each names what to change."""
    return (
        *_case_problems(cases, clauses, catalogue),
        *_clause_problems(cases, clauses.values(), catalogue),
        *_fault_problems(clauses.values(), catalogue),
    )


def _case_problems(
    cases: Iterable[Case], clauses: Mapping[str, Clause], catalogue: Catalogue
) -> Iterator[str]:
    for case in cases:
        clause = clauses.get(case.clause)
        if clause is None:
            yield f"case {case.id}: there is no clause `{case.clause}`"
        elif case.level is not clause.level:
            yield f"case {case.id}: is a {case.level}, its clause {clause.anchor} a {clause.level}"
        for fault in case.faults:
            if fault not in catalogue.faults:
                yield f"case {case.id}: there is no fault {fault}"


def _clause_problems(
    cases: Iterable[Case], clauses: Iterable[Clause], catalogue: Catalogue
) -> Iterator[str]:
    named = {case.clause for case in cases}
    for clause in clauses:
        if clause.anchor not in named and clause.no_case is None:
            yield f"clause {clause.anchor}: no case names it, and no `no_case` says why"
        if clause.anchor in named and clause.no_case is not None:
            yield f"clause {clause.anchor}: has a case and says `no_case`; remove the latter"
        for fault in clause.faults:
            if fault not in catalogue.faults:
                yield f"clause {clause.anchor}: there is no fault {fault}"


def _fault_problems(clauses: Iterable[Clause], catalogue: Catalogue) -> Iterator[str]:
    claimed = {fault for clause in clauses for fault in clause.faults}
    for fault in catalogue.faults:
        if fault not in claimed:
            yield f"fault {fault}: belongs to no clause"
