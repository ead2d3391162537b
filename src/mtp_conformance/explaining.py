"""What there is to say about a case: its clause, its faults, and how to run one cell of it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from mtp_conformance.case import Case, Cell, Registration
from mtp_conformance.catalogue import FAULTS_FILE, Fault, read_catalogue
from mtp_conformance.clauses import CLAUSES_FILE, Clause, read_clauses
from mtp_conformance.suite import SuiteError, case_file


@dataclass(frozen=True)
class Explanation:
    """A case with what it refers to.

    Attributes:
        case: its metadata.
        clause: the requirement it stands for.
        faults: faults that the case names, then those of its clause.
        command: runs one cell; for a shell in the current folder.
    """

    case: Case
    clause: Clause
    faults: tuple[Fault, ...]
    command: str


def explain(root: Path, registration: Registration, profile: str = "default") -> Explanation:
    """Gather what is known of a case.

    Raises:
        SuiteError: the case names a clause or fault that does not exist.
        TomlError: clauses or faults that cannot be read.
    """
    return explain_case(root, registration.case, command(root, registration, profile))


def explain_case(root: Path, case: Case, command: str) -> Explanation:
    """Gather what is known of a case that a command runs.

    Raises:
        SuiteError: the case names a clause or fault that does not exist.
        TomlError: clauses or faults that cannot be read.
    """
    clauses = read_clauses(root / CLAUSES_FILE)
    known = read_catalogue(root / FAULTS_FILE).faults
    if case.clause not in clauses:
        raise SuiteError(f"case {case.id}: there is no clause `{case.clause}` in {CLAUSES_FILE}")
    clause = clauses[case.clause]
    ids = tuple(dict.fromkeys((*case.faults, *clause.faults)))
    missing = [id for id in ids if id not in known]
    if missing:
        raise SuiteError(f"case {case.id}: there is no fault {missing[0]} in {FAULTS_FILE}")
    faults = tuple(known[id] for id in ids)
    return Explanation(case, clause, faults, command)


def cells_of(registration: Registration, profile: str) -> tuple[Cell | None, ...]:
    """The cells of a case in a profile; None stands for the one of a case without cells."""
    return (None,) if registration.cells is None else tuple(registration.cells(profile))


def command(root: Path, registration: Registration, profile: str) -> str:
    """A command that runs the first cell of a case."""
    cell = cells_of(registration, profile)[0]
    _, function, _ = registration.origin
    node = f"{_shown(case_file(registration))}::{function}"
    if cell is not None:
        node += f"[{cell.id}]"
    plugin = "" if (root / "pyproject.toml").is_file() else "-p mtp_conformance.plugin "
    return f"python -m pytest {plugin}{shlex.quote(node)} --profile {profile}"


def _shown(file: Path) -> Path:
    """Relative to the current folder where that is shorter to read."""
    relative = Path(os.path.relpath(file))
    return file if ".." in relative.parts else relative
