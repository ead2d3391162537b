"""The catalogue of faults that real decoders had: `conformance/faults.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import cast

from mtp_conformance.toml_table import Table, read_tables

FAULTS_FILE = Path("conformance", "faults.toml")
"""Where the catalogue lies under the suite root."""

_ID = re.compile(r"([A-Z])[1-9][0-9]*")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Confidence(str, Enum):
    """How well a fault is attested."""

    OK = "ok"  # a fix was merged, or the thread confirms it
    REVIEW = "rev"  # diagnosis of a reporter or reviewer
    DOCUMENTED = "doc"  # stated in a changelog
    HYPOTHESIS = "hyp"  # a risk raised, no failure reported

    def __str__(self) -> str:
        return self.value


class Shows(str, Enum):
    """Where a fault can be seen."""

    STATE = "S"
    LOGITS = "L"
    TOKENS = "T"
    ACCEPTANCE = "A"
    DISTRIBUTION = "D"
    COUNTERS = "C"
    MEMORY = "M"
    EXCEPTION = "X"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Fault:
    """A fault that a real decoder had.

    Attributes:
        id: kind letter and number, never reused.
        slug: a readable name.
        kind: a letter of the catalogue's kinds.
        confidence: how well it is attested.
        shows: where it can be seen.
        sources: addresses of public pages.
        symptom: what people saw, in one sentence.
        cause: why, in one sentence.
        test: the smallest thing that catches it, in one sentence.
    """

    id: str
    slug: str
    kind: str
    confidence: Confidence
    shows: tuple[Shows, ...]
    sources: tuple[str, ...]
    symptom: str
    cause: str
    test: str


@dataclass(frozen=True)
class Catalogue:
    """All faults, by id in the order of the file, and what the kinds are."""

    kinds: Mapping[str, str]
    faults: Mapping[str, Fault]


def read_catalogue(file: Path) -> Catalogue:
    """Read a catalogue.

    Raises:
        TomlError: names file, entry and field; also for a duplicate id or slug and for a kind
            that is not in the table of kinds.
    """
    tables, top = read_tables(file, "fault", "id")
    kinds = _kinds(top)
    faults: dict[str, Fault] = {}
    slugs: set[str] = set()
    for table in tables:
        fault = _fault(table, kinds)
        if fault.id in faults:
            raise table.error(f"field `id`: {fault.id} appears twice")
        if fault.slug in slugs:
            raise table.error(f"field `slug`: {fault.slug} appears twice")
        faults[fault.id] = fault
        slugs.add(fault.slug)
    return Catalogue(kinds, faults)


def _kinds(top: Table) -> Mapping[str, str]:
    value = top.value("kinds")
    top.finish()
    if not isinstance(value, dict):
        raise top.error("field `kinds` is no table")
    kinds = Table(top.file, "kinds", cast("dict[str, object]", value))
    return {letter: kinds.text(letter) for letter in cast("dict[str, object]", value)}


def _fault(table: Table, kinds: Mapping[str, str]) -> Fault:
    fault = Fault(
        id=table.text("id"),
        slug=table.text("slug"),
        kind=table.text("kind"),
        confidence=table.choice("confidence", Confidence),
        shows=table.choices("shows", Shows),
        sources=table.urls("sources"),
        symptom=table.text("symptom"),
        cause=table.text("cause"),
        test=table.text("test"),
    )
    table.finish()
    if fault.kind not in kinds:
        raise table.error(f"field `kind`: {fault.kind!r} is none of {', '.join(kinds)}")
    named = _ID.fullmatch(fault.id)
    if named is None or named[1] != fault.kind:
        raise table.error(f"field `id`: {fault.id!r} is not {fault.kind} and a number")
    if not _SLUG.fullmatch(fault.slug):
        raise table.error(f"field `slug`: {fault.slug!r} is not lower case joined by hyphens")
    for name in ("shows", "sources"):
        if not getattr(fault, name):
            raise table.error(f"field `{name}` is empty")
    return fault
