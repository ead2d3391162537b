"""A comment for a pull request: verdict, counts, models by areas, first failures, environment.

Whatever a runtime writes into a message stands in a fence or is escaped, so it can neither break
the comment nor mention people. The comment stays below GitHub's limit of 65,536 characters; what
is left out is counted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from mtp_conformance.report import Report, Result
from mtp_conformance.reporting.naming import (
    area_of,
    cell_name,
    clip,
    environment_of,
    missing_of,
    model_of,
    place_of,
    printable,
)
from mtp_conformance.reporting.severity import HEADLINES, LETTERS, reading_order, worst
from mtp_conformance.verdict import Verdict

LIMIT = 60_000

_SHOWN_FAILURES = 10
_SHOWN_MODELS = 100
_MATRIX_LIMIT, _ENVIRONMENT_LIMIT = 20_000, 12_000  # characters, escapes included
_MESSAGE, _COMMAND, _VALUE = 1_000, 1_000, 300
_MARGIN = 500  # for the lines between the blocks


def render(report: Report) -> str:
    """The comment, at most ``LIMIT`` characters."""
    top = [_headline(report), _counts(report.results), _matrix(report.results)]
    environment = _environment(report)
    room = LIMIT - _MARGIN - sum(map(len, (*top, environment)))
    return "\n\n".join([*top, *_failures(report.results, room), environment]) + "\n"


def _headline(report: Report) -> str:
    verdict = worst(result.verdict for result in report.results)
    passed, total = report.counts.get(Verdict.PASS, 0), len(report.results)
    runtime = _escape(clip(str(report.header.runtime.get("name", "unknown")), _VALUE))
    return (
        f"### MTP conformance: {HEADLINES[verdict].lower()}\n\n"
        f"**{passed} of {total}** results pass{missing_of(report)}. Runtime {runtime}, "
        f"profile {_escape(clip(report.header.profile, _VALUE))}, {report.seconds:.1f} s."
    )


def _counts(results: Sequence[Result]) -> str:
    counts = Counter(result.verdict for result in results)
    shown = [verdict for verdict in Verdict if counts[verdict]]
    return _table(["verdict", "results"], [[str(v), str(counts[v])] for v in shown])


def _matrix(results: Sequence[Result]) -> str:
    areas = sorted({area_of(result) for result in results})
    models = sorted({model_of(result) for result in results})
    rows = [[_escape(clip(model, 100)), *_row(results, model, areas)] for model in models]
    text = _table(["model", *areas], rows[:_SHOWN_MODELS])
    if len(text) > _MATRIX_LIMIT:
        return "The table of models and areas is too large for a comment; it is in report.html."
    hidden = len(rows) - _SHOWN_MODELS
    return text + (f"\n\nand {hidden} more models, in report.html" if hidden > 0 else "")


def _row(results: Sequence[Result], model: str, areas: Sequence[str]) -> Iterable[str]:
    for area in areas:
        verdicts = [r.verdict for r in results if (model_of(r), area_of(r)) == (model, area)]
        yield _cell(verdicts) if verdicts else ""


def _cell(verdicts: Sequence[Verdict]) -> str:
    """Passed and total; the letter of the worst verdict where that is no pass."""
    passed, verdict = verdicts.count(Verdict.PASS), worst(verdicts)
    counts = f"{passed}/{len(verdicts)}"
    return counts if verdict is Verdict.PASS else f"**{LETTERS[verdict]}** {counts}"


def _failures(results: Sequence[Result], room: int) -> Iterable[str]:
    """The worst failures, as many as the comment has room for, and how many more there are."""
    failing = [r for r in results if r.failure is not None and r.verdict is not Verdict.XFAIL]
    failing.sort(key=reading_order)
    if failing:
        yield "#### First failures"
    shown = _leading(map(_failure, failing[:_SHOWN_FAILURES]), room)
    yield from shown
    if len(failing) > len(shown):
        yield f"and {len(failing) - len(shown)} more, in report.html"


def _leading(blocks: Iterable[str], room: int) -> list[str]:
    """The first of the blocks, as far as they fit."""
    shown: list[str] = []
    for block in blocks:
        room -= len(block) + 2
        if room < 0:
            break
        shown.append(block)
    return shown


def _failure(result: Result) -> str:
    failure = result.failure
    if failure is None:
        return ""
    place = _escape(clip(place_of(failure), _VALUE))
    return "\n".join(
        [
            f"**{result.verdict}** {_escape(clip(cell_name(result), _VALUE))}"
            + (f" ({place})" if place else ""),
            _fence(clip(failure.message, _MESSAGE)),
            _fence(clip(failure.command, _COMMAND), "sh"),
        ]
    )


def _environment(report: Report) -> str:
    rows = [
        f"| {_escape(clip(label, 50))} | {_escape(clip(text, _VALUE))} |"
        for label, text in environment_of(report)
    ]
    shown = _leading(rows, _ENVIRONMENT_LIMIT)
    table = "\n".join([_table(["", ""], []), *shown])
    hidden = f"\n\nand {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    return f"<details><summary>Environment</summary>\n\n{table}{hidden}\n\n</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fence(text: str, language: str = "text") -> str:
    """The text in a fence that is longer than any run of backticks in it."""
    runs: list[str] = re.findall(r"`+", text)
    ticks = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"{ticks}{language}\n{printable(text)}\n{ticks}"


def _escape(text: str) -> str:
    """The text on one line with every character that Markdown or HTML reads as an entity."""
    one_line = printable(" ".join(text.split()))
    return re.sub(r"[^\w\s.,:;=+/()–-]|_", lambda found: f"&#{ord(found[0])};", one_line)
