"""The summary of a run for a terminal: what passed where, and how to see the first failures again.

A table of models by areas, totals by verdict, what the witnesses counted, and for each of the first
failures where it went wrong and the command to paste. Terminals get colour; anything else gets
plain text.
"""

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mtp_conformance.case import params_id
from mtp_conformance.report import Failure, Result
from mtp_conformance.verdict import Verdict

# Seconds a profile is meant to take on two cores; information, not a limit.
BUDGETS = {"default": 90}

_SHOWN_FAILURES = 5
_LOG_WIDTH = 240
_WITNESS_WORDS = {
    "drafted": "drafted",
    "accepted": "accepted",
    "rejected": "rejected",
    "compared": "arrays compared",
}
_NO_MODEL = "-"


def render(
    results: Sequence[Result],
    *,
    seconds: float,
    profile: str,
    report: Path | None,
    colour: bool,
    width: int,
    pages: Sequence[Path] = (),
) -> str:
    """The summary as text of at most ``width`` columns on a terminal; commands never wrap."""
    sink = io.StringIO()
    console = Console(
        file=sink,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        # A log has no width to keep to, and a cut number would say nothing.
        width=width if colour else _LOG_WIDTH,
        highlight=False,
        legacy_windows=False,
    )
    console.print(_table(results, plain=not colour))
    for line in _lines(results, seconds, profile, _report_line(report, pages)):
        console.print(line, soft_wrap=True)
    return sink.getvalue() if colour else _without_trailing_blanks(sink.getvalue())


def _without_trailing_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _lines(
    results: Sequence[Result], seconds: float, profile: str, report_line: str
) -> Iterable[Text]:
    yield _verdicts(results)
    yield _engagement(results)
    yield Text(_time(seconds, profile))
    if report_line:
        yield Text(report_line)
    yield from _near_ties(results)
    failing = [r for r in results if r.failure is not None and r.verdict is not Verdict.XFAIL]
    failures = sorted(failing, key=_says_most)
    for result in failures[:_SHOWN_FAILURES]:
        yield from _failure_lines(result)
    if len(failures) > _SHOWN_FAILURES:
        yield Text(f"\nand {len(failures) - _SHOWN_FAILURES} more")


def _says_most(result: Result) -> tuple[bool, bool, int]:
    """Order of failures: what names a layer first, near-ties last, earlier rounds first."""
    failure = result.failure
    layer = None if failure is None else failure.layer
    round_ = None if failure is None else failure.round
    return result.verdict is Verdict.NEAR_TIE, layer is None, round_ or 0


def _near_ties(results: Sequence[Result]) -> Iterable[Text]:
    """Rate and severity of proven near-ties, where there are any."""
    ties = [r for r in results if r.verdict is Verdict.NEAR_TIE]
    if not ties:
        return
    streams = sum(_area(result) == "stream" for result in results)
    margins = [abs(r.failure.margin or 0.0) for r in ties if r.failure is not None]
    widest = max(margins, default=0.0)
    yield Text(f"near-ties: {len(ties)} of {streams} streams, logits at most {widest:g} apart")


def _report_line(report: Path | None, pages: Sequence[Path]) -> str:
    """Where the report is, and the names of the pages beside it."""
    if report is None:
        return ""
    beside = f" (beside it: {', '.join(page.name for page in pages)})" if pages else ""
    return f"report: {report}{beside}"


def _table(results: Sequence[Result], *, plain: bool) -> Table:
    areas = sorted({_area(result) for result in results})
    table = Table(box=box.MARKDOWN if plain else box.SIMPLE_HEAD)
    table.add_column("model", no_wrap=True)
    for area in areas:
        table.add_column(area, justify="right", overflow="fold")
    for model in sorted({_model(result) for result in results}):
        of_model = [result for result in results if _model(result) == model]
        cells = [[result for result in of_model if _area(result) == area] for area in areas]
        table.add_row(Text(model), *(_count(cell) for cell in cells))
    return table


def _area(result: Result) -> str:
    return result.case.split(".", 1)[0]


def _model(result: Result) -> str:
    return str(result.params.get("model", _NO_MODEL))


def _count(results: Sequence[Result]) -> Text:
    """``passed/total``; what is unsupported counts in neither and is shown beside."""
    counts = Counter(result.verdict for result in results)
    unsupported, passed = counts[Verdict.UNSUPPORTED], counts[Verdict.PASS]
    total = len(results) - unsupported
    text = Text()
    if total:
        text.append(f"{passed}/{total}", style="" if passed == total else "bold red")
    if unsupported:
        text.append(f"{' ' if total else ''}+{unsupported} unsupported", style="yellow")
    return text


def _verdicts(results: Sequence[Result]) -> Text:
    counts = Counter(result.verdict for result in results)
    parts = [f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]]
    return Text(f"verdicts: {', '.join(parts)}")


def _engagement(results: Sequence[Result]) -> Text:
    totals: Counter[str] = Counter()
    for result in results:
        totals.update(result.witness)
    parts = [f"{totals[name]:,} {words}" for name, words in _WITNESS_WORDS.items()]
    return Text(f"engagement: {', '.join(parts)}")


def _time(seconds: float, profile: str) -> str:
    budget = BUDGETS.get(profile)
    if budget is None:
        return f"finished in {seconds:.1f} s"
    word = "within" if seconds <= budget else "OVER"
    return f"finished in {seconds:.1f} s, {word} the {budget} s meant for {profile} on two cores"


def _failure_lines(result: Result) -> Iterable[Text]:
    failure = result.failure
    if failure is None:
        return
    style = "bold red" if result.verdict is Verdict.FAIL else "bold yellow"
    title = Text(f"\n{result.verdict}: ", style=style)
    yield title.append(f"{result.case} [{params_id(result.params)}]", style="bold")
    where = _where(failure)
    if where:
        yield Text(f"  {where}")
    yield Text(f"  {failure.message.partition(chr(10))[0]}")
    if result.reason and result.reason != failure.message:
        yield Text(f"  {result.reason}")  # what a list of known failures says of it
    yield Text(f"  {failure.command}", style="cyan")


def _where(failure: Failure) -> str:
    named = {"round": failure.round, "layer": failure.layer, "component": failure.component}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value not in (None, ""))
