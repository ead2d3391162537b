"""Reports: what the reader refuses, and why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtp_conformance.report import ReportError, read_report

Records = list[Any]
Edit = Callable[[Callable[[Records], object]], Path]

REFUSALS: dict[str, tuple[Callable[[Records], object], str]] = {
    "no-header": (lambda r: r.pop(0), r"^line 1: the header is missing"),
    "two-headers": (lambda r: r.insert(1, r[0]), r"^line 2: a second header"),
    "no-footer": (lambda r: r.pop(), r"^line 4: the footer is missing"),
    "two-footers": (lambda r: r.append(r[-1]), r"^line 5: a second footer"),
    "header-alone": (lambda r: r.__delitem__(slice(1, None)), r"^line 1: the footer is missing"),
    "incomplete": (lambda r: r[-1].update(complete=False), r"^line 5: the run is incomplete"),
    "no-result": (lambda r: r.__delitem__(slice(2, 4)), r"holds no result"),
    "same-result-twice": (lambda r: r.insert(3, r[2]), r"^line 4: the result of .* appears twice"),
    "same-case-twice": (lambda r: r.insert(1, r[1]), r"^line 3: case .* appears twice"),
    "unknown-type": (lambda r: r[2].update(type="note"), r"^line 3: unknown record type 'note'"),
    "no-type": (lambda r: r[2].pop("type"), r"^line 3: unknown record type None"),
    "wrong-counts": (lambda r: r[-1].update(counts={"pass": 3}), r"^line 5: the counts are not"),
    "unknown-verdict": (lambda r: r[2].update(verdict="ok"), r"^line 3: unknown verdict 'ok'"),
    "unknown-case": (lambda r: r[2].update(case="a.b.c"), r"^line 3: case a\.b\.c has no record"),
    "other-manifest": (lambda r: r[1].update(clause="x"), r"^line 1: the manifest hash is not"),
    "other-schema": (lambda r: r[0].update(schema=2), r"^line 1: schema 2 is not 1"),
    "malformed-id": (lambda r: r[1].update(id="rewind"), r"^line 2: case id 'rewind' is not"),
    "missing-field": (lambda r: r[2].pop("witness"), r"^line 3: 'witness' is missing"),
    "wrong-field": (lambda r: r[2].update(seconds=True), r"^line 3: 'seconds' is no integer"),
    "wrong-list": (lambda r: r[1].update(needs=[1]), r"^line 2: 'needs' holds something else"),
    "no-list": (lambda r: r[1].update(needs="fork"), r"^line 2: 'needs' is no list"),
    "wrong-params": (lambda r: r[2].update(params={"k": []}), r"^line 3: 'params' holds something"),
}


@pytest.mark.parametrize(("change", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_report_that_cannot_be_trusted_is_refused(
    edit_report: Edit, change: Callable[[Records], object], reason: str
) -> None:
    """The reader names the reason and the line."""
    with pytest.raises(ReportError, match=reason):
        read_report(edit_report(change))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the report is empty"),
        ('{"type": "header"\n', "^line 1: not JSON"),
        ('{"type": "header", "seed": NaN}\n', "^line 1: not JSON: NaN"),
        ("[]\n", "^line 1: not a JSON object"),
    ],
    ids=["empty", "cut", "nan", "list"],
)
def test_a_file_that_is_no_report_is_refused(report_path: Path, text: str, reason: str) -> None:
    """The reader takes nothing but lines of JSON objects, and at least one."""
    report_path.write_text(text)
    with pytest.raises(ReportError, match=reason):
        read_report(report_path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A missing file is a report error too."""
    with pytest.raises(ReportError, match="cannot be read"):
        read_report(tmp_path / "report.jsonl")
