"""Reports and tables of clauses, as people read them: a verdict of each kind, on one page."""

import re
from collections.abc import Callable
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from mtp_conformance import summary
from mtp_conformance.report import Report, Result
from mtp_conformance.reporting import diff, junit, markdown, matrix
from mtp_conformance.verdict import Verdict


def test_summary(report: Report, snapshot: SnapshotAssertion) -> None:
    """What a terminal shows at the end of a run."""
    text = summary.render(
        report.results,
        seconds=41.2,
        profile="default",
        report=Path("out/report.jsonl"),
        colour=False,
        width=100,
    )
    assert text == snapshot


def test_markdown(report: Report, snapshot: SnapshotAssertion) -> None:
    """What a pull request shows."""
    assert _dated(markdown.render(report)) == snapshot


def test_junit(report: Report, snapshot: SnapshotAssertion) -> None:
    """What a build server reads."""
    assert _dated(junit.render(report)) == snapshot


def test_diff(
    make_report: Callable[..., Report], results: tuple[Result, ...], snapshot: SnapshotAssertion
) -> None:
    """What changed between two reports."""
    old, new = make_report(*results[:3]), make_report(*results[1:4])
    assert diff.render_text(diff.diff(old, new)) == snapshot


def test_table_of_clauses(
    make_report: Callable[..., Report],
    write_report: Callable[[Report], Path],
    results: tuple[Result, ...],
    snapshot: SnapshotAssertion,
) -> None:
    """Clause by clause, where two runtimes stand."""
    versions = {"versions": {"theirs": "1.2"}}
    quiet = [r for r in results if r.verdict in (Verdict.PASS, Verdict.UNSUPPORTED)]
    folders = [
        write_report(make_report(*chosen, runtime={"name": name, **versions}, date="2026-01-02"))
        for name, chosen in (("theirs", results), ("other", quiet))
    ]
    page = matrix.render([folder.parent for folder in folders])["matrix.md"]
    assert _dated(page) == snapshot


def _dated(text: str) -> str:
    """Without what is not of the report: the day."""
    return re.sub(r"\d{4}-\d{2}-\d{2}T[0-9:.+Z-]+", "TIME", text)
