"""The clauses: what is required of a decoder and why, `conformance/clauses.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mtp_conformance.case import Level
from mtp_conformance.toml_table import Table, read_tables

CLAUSES_FILE = Path("conformance", "clauses.toml")
"""Where the clauses lie under the suite root."""

_ANCHOR = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Clause:
    """One requirement.

    Attributes:
        anchor: its stable name.
        level: whether a decoder that breaks it is wrong.
        requirement: one sentence that is true of a conforming decoder.
        reason: what goes wrong otherwise.
        faults: ids of the catalogue.
        no_case: why no case names it; None where cases do.
    """

    anchor: str
    level: Level
    requirement: str
    reason: str
    faults: tuple[str, ...]
    no_case: str | None = None


def read_clauses(file: Path) -> Mapping[str, Clause]:
    """Read the clauses, by anchor in the order of the file.

    Raises:
        TomlError: names file, entry and field; also for a duplicate anchor.
    """
    tables, top = read_tables(file, "clause", "anchor")
    top.finish()
    clauses: dict[str, Clause] = {}
    for table in tables:
        clause = _clause(table)
        if clause.anchor in clauses:
            raise table.error(f"field `anchor`: {clause.anchor} appears twice")
        clauses[clause.anchor] = clause
    return clauses


def _clause(table: Table) -> Clause:
    clause = Clause(
        anchor=table.text("anchor"),
        level=table.choice("level", Level),
        requirement=table.text("requirement"),
        reason=table.text("reason"),
        faults=table.texts("faults"),
        no_case=table.optional_text("no_case"),
    )
    table.finish()
    if not _ANCHOR.fullmatch(clause.anchor):
        raise table.error(f"field `anchor`: {clause.anchor!r} is not lower case joined by hyphens")
    return clause
