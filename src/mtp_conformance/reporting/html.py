"""The HTML page: one file that needs no network, for a screen of any width.

The template is ``report.html.j2``; here is what it shows, computed from the report. Passes are
counted only; results that failed are spelled out, the worst first, up to a size that a phone still
loads. Everything is escaped, and the page's own policy forbids it to load anything.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import cast

from jinja2 import Environment, StrictUndefined
from markupsafe import escape

from mtp_conformance.case import Case, params_id
from mtp_conformance.report import Failure, Header, Minimal, Report, Result
from mtp_conformance.reporting.naming import (
    area_of,
    clip,
    environment_of,
    k_of,
    missing_of,
    model_of,
    place_of,
    printable,
    value_text,
)
from mtp_conformance.reporting.severity import (
    FROM_BEST,
    HEADLINES,
    LETTERS,
    MEANINGS,
    reading_order,
    worst,
)
from mtp_conformance.verdict import Verdict

_TEMPLATE = "report.html.j2"
# Bytes of escaped text that all failures together may take; characters that one text may have.
_BUDGET = 500_000
_MARKUP = 1_200  # what one failure's tags take
_TEXT = 4_000
_BITS = 200
_GAPS = 200  # rows of what is unsupported
_OPEN_GROUPS = 3


@dataclass(frozen=True)
class Square:
    """One square of a matrix: the results of one area, model and K."""

    worst: Verdict
    counts: Mapping[Verdict, int]
    anchor: str | None

    @property
    def text(self) -> str:
        """The number of results; how many of them pass where not all do."""
        total, passed = sum(self.counts.values()), self.counts.get(Verdict.PASS, 0)
        return str(total) if passed == total else f"{passed}/{total}"


@dataclass(frozen=True)
class Matrix:
    """The results of one area: models in rows, K in columns."""

    area: str
    counts: Mapping[Verdict, int]
    ks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]


@dataclass(frozen=True)
class Detail:
    """One result that is spelled out."""

    anchor: str
    result: Result
    failure: Failure
    name: str
    place: str
    facts: tuple[tuple[str, str], ...]
    bits: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]


@dataclass(frozen=True)
class CaseDetails:
    """The spelled-out results of one case."""

    case: Case
    details: tuple[Detail, ...]
    counts: Mapping[Verdict, int]
    open: bool


@dataclass(frozen=True)
class Timing:
    """How long the results of one case took, and the slowest of them."""

    case: Case
    counts: Mapping[Verdict, int]
    seconds: float
    slowest: str
    slowest_seconds: float


@dataclass(frozen=True)
class Gap:
    """What a case lacks on some results that were not supported."""

    case: str
    reason: str
    count: int


@dataclass(frozen=True)
class Probe:
    """A probe: operations in rows, widths in columns, and whatever else it says."""

    widths: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def unequal(self) -> int:
        """The number of operations that are not equal at some width."""
        return sum("≠" in signs for _, signs in self.rows)


def render(report: Report) -> str:
    """The page as HTML text."""
    results = report.results
    counts = _counts(results)
    shown = _within_budget(_failing(results))
    cases = {case.id: case for case in report.cases}
    template = _environment().from_string(_source())
    return template.render(
        overall=worst(counts),
        counts=counts,
        report=report,
        missing=missing_of(report),
        passed=counts.get(Verdict.PASS, 0),
        headings=_headings(report.header),
        environment=environment_of(report),
        matrices=_matrices(results, {detail.result.key: detail.anchor for detail in shown}),
        groups=_groups(shown, cases),
        hidden=len(_failing(results)) - len(shown),
        gaps=_gaps(results),
        timings=_timings(results, cases),
        probe=_probe(report.header.probe),
        legend=list(Verdict),
        headlines=HEADLINES,
        letters=LETTERS,
        meanings=MEANINGS,
        clip=clip,
        text_limit=_TEXT,
    )


def _source() -> str:
    return (
        resources.files("mtp_conformance.reporting").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    )


def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["rounds"] = _rounds
    return environment


def _headings(header: Header) -> Iterable[str]:
    """What ran where, in one line."""
    yield f"mlx {header.mlx}"
    if header.mlx_lm is not None:
        yield f"mlx-lm {header.mlx_lm}"
    yield header.device
    if header.git is not None:
        yield f"git {header.git.commit[:10]}{' with other changes' if header.git.dirty else ''}"
    yield f"profile {header.profile}"
    if header.shard is not None:
        yield f"shard {header.shard.index} of {header.shard.of}"


def _counts(results: Iterable[Result]) -> dict[Verdict, int]:
    """Results by verdict, the worst first."""
    counts = Counter(result.verdict for result in results)
    return {verdict: counts[verdict] for verdict in reversed(FROM_BEST) if counts[verdict]}


# --- matrices ----------------------------------------------------------------------------------


def _matrices(
    results: Sequence[Result], anchors: Mapping[tuple[str, str], str]
) -> tuple[Matrix, ...]:
    areas = sorted({area_of(result) for result in results})
    return tuple(
        _matrix(area, [result for result in results if area_of(result) == area], anchors)
        for area in areas
    )


def _matrix(area: str, results: Sequence[Result], anchors: Mapping[tuple[str, str], str]) -> Matrix:
    squares: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        squares[model_of(result), k_of(result)].append(result)
    ks = tuple(sorted({k for _, k in squares}, key=_numbers_first))
    models = sorted({model for model, _ in squares})
    rows = tuple(
        (model, tuple(_square(squares.get((model, k), []), anchors) for k in ks))
        for model in models
    )
    return Matrix(area, _counts(results), ks, rows)


def _square(results: Sequence[Result], anchors: Mapping[tuple[str, str], str]) -> Square | None:
    if not results:
        return None
    counts = _counts(results)
    first = sorted(results, key=reading_order)
    linked = [anchors[result.key] for result in first if result.key in anchors]
    return Square(worst(counts), counts, linked[0] if linked else None)


def _numbers_first(text: str) -> tuple[int, int, str]:
    """Numbers by value, then everything else by name."""
    return (0, int(text), "") if text.isdecimal() else (1, 0, text)


# --- what failed -------------------------------------------------------------------------------


def _failing(results: Iterable[Result]) -> list[Result]:
    """What is neither a pass nor unsupported, the worst first."""
    counted_only = (Verdict.PASS, Verdict.UNSUPPORTED)
    failing = [result for result in results if result.verdict not in counted_only]
    return sorted(failing, key=reading_order)


def _within_budget(results: Sequence[Result]) -> list[Detail]:
    details: list[Detail] = []
    size = 0
    for number, result in enumerate(results, start=1):
        detail = _detail(f"r{number}", result)
        size += _MARKUP + _length(detail)
        if size > _BUDGET:
            break
        details.append(detail)
    return details


def _length(detail: Detail) -> int:
    """How much text a failure brings, as it stands in the page."""
    failure = detail.failure
    texts = [detail.name, detail.place, failure.message, failure.command]
    texts += [failure.stderr or "", detail.result.reason or ""]
    texts += [text for fact in detail.facts for text in fact]
    rungs = 60 * len(failure.ladder or ())
    return rungs + sum(len(escape(printable(clip(text, _TEXT))).encode()) for text in texts)


def _detail(anchor: str, result: Result) -> Detail:
    failure = result.failure or Failure(message=result.reason or str(result.verdict), command="")
    return Detail(
        anchor=anchor,
        result=result,
        failure=failure,
        name=params_id(result.params),
        place=place_of(failure),
        facts=tuple(_facts(result, failure)),
        bits=_bits(failure),
    )


def _facts(result: Result, failure: Failure) -> Iterable[tuple[str, str]]:
    """Everything known that is one short value; ``()`` is the index of a scalar."""
    known = {
        "round": failure.round,
        "layer": failure.layer,
        "component": failure.component,
        "first at": failure.index if failure.index is None else f"({value_text(failure.index)})",
        "distance": None if failure.ulp is None else f"{failure.ulp:,} ULP",
        "top-2 margin": failure.margin,
    }
    for name, value in known.items():
        if value not in (None, ""):
            yield name, clip(str(value), _TEXT)
    for name, value in (("params", result.params), ("witness", result.witness)):
        if value:
            yield name, clip(value_text(value), _TEXT)
    yield "time", f"{result.seconds:.2f} s"


def _bits(failure: Failure) -> tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]:
    """Both patterns in runs of digits that the other pattern has as well, and that it has not."""
    actual, expected = failure.actual_bits, failure.expected_bits
    if actual is None or expected is None:
        return ()
    return ("actual", _runs(actual, expected)), ("expected", _runs(expected, actual))


def _runs(bits: str, other: str) -> tuple[tuple[str, bool], ...]:
    digits = enumerate(clip(bits, _BITS))
    runs = groupby(digits, key=lambda place: other[place[0] : place[0] + 1] != place[1])
    return tuple(("".join(digit for _, digit in run), differs) for differs, run in runs)


def _rounds(minimal: Minimal) -> str:
    """``3 drafted, 1 accepted; 2 drafted, 0 accepted``."""
    shown = [f"{drafts} drafted, {accepted} accepted" for drafts, accepted in minimal.rounds]
    return clip("; ".join(shown), _TEXT)


def _groups(details: Sequence[Detail], cases: Mapping[str, Case]) -> tuple[CaseDetails, ...]:
    groups: dict[str, list[Detail]] = defaultdict(list)
    for detail in details:
        groups[detail.result.case].append(detail)
    return tuple(
        CaseDetails(
            case=cases[id],
            details=tuple(group),
            counts=_counts(detail.result for detail in group),
            open=place < _OPEN_GROUPS,
        )
        for place, (id, group) in enumerate(groups.items())
    )


# --- tables ------------------------------------------------------------------------------------


def _gaps(results: Iterable[Result]) -> tuple[Gap, ...]:
    reasons = Counter(
        (result.case, result.reason or "")
        for result in results
        if result.verdict is Verdict.UNSUPPORTED
    )
    gaps = [Gap(case, clip(reason, 300), n) for (case, reason), n in sorted(reasons.items())]
    return tuple(gaps[:_GAPS])


def _timings(results: Iterable[Result], cases: Mapping[str, Case]) -> tuple[Timing, ...]:
    """Cases by the time all their results took, the longest first."""
    by_case: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_case[result.case].append(result)
    timings = [_timing(cases[id], of_case) for id, of_case in by_case.items()]
    return tuple(sorted(timings, key=lambda timing: (-timing.seconds, timing.case.id)))


def _timing(case: Case, results: Sequence[Result]) -> Timing:
    slowest = max(results, key=lambda result: result.seconds)
    return Timing(
        case=case,
        counts=_counts(results),
        seconds=sum(result.seconds for result in results),
        slowest=clip(params_id(slowest.params), 100),
        slowest_seconds=slowest.seconds,
    )


def _probe(probe: Mapping[str, object] | None) -> Probe | None:
    """The probe of the header: operation → width → equal or not, beside plain facts."""
    if not probe:
        return None
    tables = {name: _mapping(value) for name, value in probe.items() if _mapping(value)}
    facts = {name: value for name, value in probe.items() if name not in tables}
    operations = tables.pop("operations", None)
    if operations is not None:
        facts |= tables
        tables = {name: _mapping(value) or {"": value} for name, value in operations.items()}
    widths = sorted({width for row in tables.values() for width in row}, key=_numbers_first)
    rows = [
        (name, tuple(_equal(row.get(width)) for width in widths)) for name, row in tables.items()
    ]
    texts = [(name, clip(value_text(value), _TEXT)) for name, value in facts.items()]
    return Probe(tuple(widths), tuple(rows), tuple(texts))


def _mapping(value: object) -> dict[str, object]:
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else {}


def _equal(value: object) -> str:
    if isinstance(value, bool):
        return "=" if value else "≠"
    return "–" if value is None else value_text(value)
