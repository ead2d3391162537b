"""The matrix: runtimes of one manifest beside each other."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtp_conformance.commands import report as command
from mtp_conformance.report import Report, ReportError, Result
from mtp_conformance.reporting.matrix import Square, read_entries, render
from mtp_conformance.verdict import Verdict
from tests.harness.command_line import run

Write = Callable[[Report], Path]
CARD: dict[str, Any] = {
    "versions": {"theirs": "1.2"},
    "capabilities": ["stream"],
    "strategies": ["trim", "copy"],
    "head_rows": ["draft"],
    "max_draft_tokens": 3,
    "after_stop": "block",
    "notes": {"drafting": "needs A|B <set>"},
}


@pytest.fixture
def folders(
    make_report: Callable[..., Report], write_report: Write, results: tuple[Result, ...]
) -> list[Path]:
    """One runtime with a result of every verdict, and one that passes and lacks something."""
    whole = make_report(*results, runtime={"name": "theirs", **CARD}, date="2026-01-02")
    quiet = [r for r in results if r.verdict in (Verdict.PASS, Verdict.UNSUPPORTED)]
    return [
        write_report(whole).parent,
        write_report(make_report(*quiet, runtime={"name": "other", **CARD})).parent,
    ]


def test_square_takes_the_worst_of_what_is_supported() -> None:
    """Unsupported cells are counted beside the verdict and never hide it, nor make one."""
    assert Square({Verdict.PASS: 2, Verdict.UNSUPPORTED: 3}).text == "P 2/2 +3 U"
    assert Square({Verdict.FAIL: 1, Verdict.PASS: 2}).text == "F 2/3"
    assert Square({Verdict.UNSUPPORTED: 3}).text == "+3 U"
    assert Square({Verdict.UNSUPPORTED: 3}).worst is Verdict.UNSUPPORTED


def test_every_runtime_and_its_card_are_on_both_pages(folders: list[Path]) -> None:
    """Versions, strategies, K range, policies, notes and the day stand there, escaped."""
    pages = render(folders)
    for page in pages.values():
        for text in ("theirs 1.2", "trim, copy", "2026-01-02", "head rows from draft", "the block"):
            assert text in page
    assert "needs A|B &lt;set&gt;" in pages["matrix.html"]
    assert "| F 1/7 +1 U |" in pages["matrix.md"]
    assert "| P 1/1 +1 U |" in pages["matrix.md"]


def test_failures_are_behind_their_square(folders: list[Path]) -> None:
    """The page has the cell, its place, message and command, under the square's link."""
    page = render(folders)["matrix.html"]
    anchor = read_entries(folders)[0][0].clause
    assert f'href="#theirs-{anchor}"' in page
    assert f'id="theirs-{anchor}"' in page
    assert "layer" in page
    assert "<th>K=2</th>" in page
    assert '<th class="row">gdn</th>' in page


def test_html_needs_no_network(folders: list[Path]) -> None:
    """Nothing is loaded from anywhere."""
    page = render(folders)["matrix.html"]
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)
    assert "default-src 'none'" in page


def test_stock_is_a_note(folders: list[Path]) -> None:
    """What is found of another engine's tokens is shown, and no verdict."""
    (folders[0] / "stock.json").write_text(json.dumps({"gdn": "differs at token 3"}))
    for page in render(folders).values():
        assert "differs at token 3" in page
        assert "ot judged" in page


def test_other_manifest_is_refused(
    folders: list[Path], make_report: Callable[..., Report], write_report: Write, report: Report
) -> None:
    """Runtimes judged by different cases do not stand beside each other."""
    assert report.header.manifest == read_manifest(folders[0])
    fewer = report.cases[:1]
    from dataclasses import replace

    from mtp_conformance.report import manifest_hash

    kept = tuple(r for r in report.results if r.case == fewer[0].id)
    header = replace(report.header, manifest=manifest_hash(fewer))
    folder = write_report(replace(report, header=header, cases=fewer, results=kept)).parent
    with pytest.raises(ReportError, match="was judged by other cases than"):
        render([folders[0], folder])


def read_manifest(folder: Path) -> str:
    """The manifest in a report's first line."""
    return json.loads((folder / "report.jsonl").read_text().splitlines()[0])["manifest"]


def test_command(folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`report matrix` writes both pages; without folders or with a bad report it ends with 2."""
    out = tmp_path / "docs"
    assert run(command, "report", "matrix", *map(str, folders), "--out", str(out)) == 0
    assert {path.name for path in out.iterdir()} == {"matrix.md", "matrix.html"}
    assert run(command, "report", "matrix", "--out", str(out)) == 2
    (folders[0] / "report.jsonl").write_text("")
    assert run(command, "report", "matrix", str(folders[0]), "--out", str(out)) == 2
    assert "is empty" in capsys.readouterr().err
