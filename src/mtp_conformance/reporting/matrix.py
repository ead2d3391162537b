"""Many runtimes beside each other: reports of one manifest, clause by clause.

Two pages from the same data: ``matrix.md`` for reading in a repository, ``matrix.html`` with what
is behind every square. A square takes the worst verdict of what the runtime supports, and counts
what it does not beside it. Equality with another engine (``stock.json`` beside a report) stands
apart and is no verdict.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import cast

from jinja2 import Environment, StrictUndefined, Template

from mtp_conformance.case import Case, params_id
from mtp_conformance.report import Report, ReportError, Result, read_report
from mtp_conformance.reporting.naming import clip, k_of, model_of, place_of, printable
from mtp_conformance.reporting.severity import FROM_BEST, LETTERS, MEANINGS, reading_order, worst
from mtp_conformance.verdict import Verdict

REPORT = "report.jsonl"
STOCK = "stock.json"
_SHOWN = 3  # failures spelled out behind one square
_TEXT = 600


@dataclass(frozen=True)
class Square:
    """The results of one runtime under one clause, or of a part of them."""

    counts: Mapping[Verdict, int]
    reason: str = ""

    @property
    def worst(self) -> Verdict:
        """The worst verdict of what the runtime supports; unsupported where that is nothing."""
        judged = [verdict for verdict in self.counts if verdict is not Verdict.UNSUPPORTED]
        return worst(judged or self.counts)

    @property
    def text(self) -> str:
        """Letter, passes of how many judged, and how many are unsupported."""
        unsupported = self.counts.get(Verdict.UNSUPPORTED, 0)
        judged = sum(self.counts.values()) - unsupported
        shown = f"{self.counts.get(Verdict.PASS, 0)}/{judged}" if judged else ""
        beside = f"+{unsupported} {LETTERS[Verdict.UNSUPPORTED]}" if unsupported else ""
        return " ".join(filter(None, (LETTERS[self.worst] if judged else "", shown, beside)))


@dataclass(frozen=True)
class Shown:
    """One result that is spelled out."""

    verdict: Verdict
    name: str
    place: str
    message: str
    command: str


@dataclass(frozen=True)
class Parts:
    """The squares behind one: a model and strategy in rows, K in columns."""

    ks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]


@dataclass(frozen=True)
class Entry:
    """One runtime: its card, its squares by clause, and those by model and K behind each."""

    name: str
    versions: str
    levels: str
    strategies: str
    head_rows: str
    max_draft_tokens: str
    after_stop: str
    notes: Mapping[str, str]
    date: str
    counts: Mapping[Verdict, int]
    witness: Mapping[str, int]
    clauses: Mapping[str, Square]
    parts: Mapping[str, Parts]
    shown: Mapping[str, Sequence[Shown]]
    stock: Mapping[str, str]


def read_entries(folders: Sequence[Path]) -> tuple[list[Case], list[Entry]]:
    """The cases all reports share, and one entry a report, by name.

    Raises:
        ReportError: a report cannot be trusted, or is of another manifest than the first.
    """
    cases: tuple[Case, ...] = ()
    manifest, first, entries = "", "", list[Entry]()
    for folder in folders:
        try:
            report = read_report(folder / REPORT)
        except ReportError as error:
            raise ReportError(f"{folder / REPORT}: {error}") from error
        if manifest and report.header.manifest != manifest:
            raise ReportError(
                f"{folder} was judged by other cases than {first}; judge both by one suite"
            )
        manifest, first = report.header.manifest, first or str(folder)
        cases = report.cases
        entries.append(_entry(report, folder))
    if not entries:
        raise ReportError("a matrix needs at least one report")
    return list(cases), sorted(entries, key=lambda entry: entry.name)


def render(folders: Sequence[Path]) -> dict[str, str]:
    """File names to texts of both pages.

    Raises:
        ReportError: see `read_entries`.
    """
    cases, entries = read_entries(folders)
    anchors = sorted({case.clause for case in cases})
    values = {
        "entries": entries,
        "clauses": anchors,
        "levels": {case.clause: case.level.value for case in cases},
        "ids": {anchor: [c.id for c in cases if c.clause == anchor] for anchor in anchors},
        "legend": [(LETTERS[v], v, MEANINGS[v]) for v in FROM_BEST],
        "models": sorted({model for entry in entries for model in entry.stock}),
        "verdicts": list(reversed(FROM_BEST)),
    }
    return {name: _template(name).render(values) for name in ("matrix.md", "matrix.html")}


def _template(name: str) -> Template:
    source = resources.files("mtp_conformance.reporting").joinpath(f"{name}.j2")
    environment = Environment(
        autoescape=name.endswith("html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["cell"] = _cell
    return environment.from_string(source.read_text(encoding="utf-8"))


def _cell(text: str) -> str:
    """Text that cannot end a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _entry(report: Report, folder: Path) -> Entry:
    clause_of = {case.id: case.clause for case in report.cases}
    by_clause: dict[str, list[Result]] = defaultdict(list)
    for result in report.results:
        by_clause[clause_of[result.case]].append(result)
    card = report.header.runtime
    witness: Counter[str] = Counter()
    for result in report.results:
        witness.update(result.witness)
    return Entry(
        name=str(card["name"]),
        versions=_pairs(card.get("versions")),
        levels=_list(card.get("capabilities")),
        strategies=_list(card.get("strategies")),
        head_rows=_list(card.get("head_rows")),
        max_draft_tokens=str(card.get("max_draft_tokens", "")),
        after_stop=str(card.get("after_stop", "frontier")),
        notes={str(k): str(v) for k, v in _mapping(card.get("notes")).items()},
        date=report.header.date,
        counts=_square(report.results).counts,
        witness=witness,
        clauses={anchor: _square(results) for anchor, results in by_clause.items()},
        parts={anchor: _parts(results) for anchor, results in by_clause.items()},
        shown={anchor: _shown(results) for anchor, results in by_clause.items()},
        stock=_stock(folder / STOCK),
    )


def _square(results: Sequence[Result]) -> Square:
    counts = Counter(result.verdict for result in results)
    ordered = {verdict: counts[verdict] for verdict in reversed(FROM_BEST) if counts[verdict]}
    reasons = Counter(r.reason for r in results if r.reason and r.verdict is Verdict.UNSUPPORTED)
    return Square(ordered, clip(reasons.most_common(1)[0][0], _TEXT) if reasons else "")


def _parts(results: Sequence[Result]) -> Parts:
    parts: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        strategy = str(result.params.get("strategy", ""))
        parts[f"{model_of(result)} {strategy}".strip(), k_of(result)].append(result)
    ks = tuple(sorted({k for _, k in parts}))
    names = sorted({name for name, _ in parts})
    rows = tuple(
        (name, tuple(_square(parts[name, k]) if (name, k) in parts else None for k in ks))
        for name in names
    )
    return Parts(ks, rows)


def _shown(results: Sequence[Result]) -> list[Shown]:
    quiet = (Verdict.PASS, Verdict.UNSUPPORTED)
    told = [result for result in results if result.verdict not in quiet]
    return [
        Shown(
            result.verdict,
            f"{result.case}[{params_id(result.params)}]",
            place_of(result.failure) if result.failure else "",
            clip(_told(result), _TEXT),
            _relative(result.failure.command) if result.failure else "",
        )
        for result in sorted(told, key=reading_order)[:_SHOWN]
    ]


def _told(result: Result) -> str:
    """Why a result may fail, if that is known, and how it does."""
    message = result.failure.message if result.failure is not None else ""
    return _relative("\n".join(filter(None, (result.reason, message))))


def _relative(text: str) -> str:
    """The text with paths below the current folder as they are typed there."""
    return text.replace(f"{Path.cwd()}/", "")


def _stock(file: Path) -> dict[str, str]:
    """What was found of K=0 streams against the builtin decoder's, by model."""
    if not file.exists():
        return {}
    record = cast("dict[str, object]", json.loads(file.read_text()))
    return {str(model): str(found) for model, found in record.items()}


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _pairs(value: object) -> str:
    return ", ".join(f"{name} {number}" for name, number in _mapping(value).items())


def _list(value: object) -> str:
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    return ", ".join(map(str, items))
