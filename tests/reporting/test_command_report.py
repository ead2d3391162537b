"""``mtp-conformance report``: pages again, and shards into one."""

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.commands import report as command
from mtp_conformance.report import Report, read_report
from mtp_conformance.reporting.pages import PAGES

Write = Callable[[Report], Path]


def _run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["report", *map(str, arguments)])
    return parsed.run(parsed)


def test_pages_are_made_beside_the_report(report: Report, write_report: Write) -> None:
    """A report, or the folder it lies in, gets its pages."""
    folder = write_report(report).parent
    assert _run(folder) == 0
    assert {path.name for path in folder.iterdir()} == {"report.jsonl", *PAGES}


def test_pages_go_into_another_folder(
    report: Report, write_report: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--out names the folder, and every page is named."""
    assert _run(write_report(report), "--out", tmp_path / "pages") == 0
    expected = [str(tmp_path / "pages" / name) for name in PAGES]
    assert capsys.readouterr().out.splitlines() == expected


def test_shards_are_merged(write_shards: Callable[..., list[Path]], tmp_path: Path) -> None:
    """The merged report and its pages lie where --out says, in a folder that is made."""
    out = tmp_path / "new" / "whole.jsonl"
    assert _run("merge", *write_shards(), "--out", out) == 0
    assert len(read_report(out).results) == 8
    assert {path.name for path in out.parent.iterdir()} == {"whole.jsonl", *PAGES}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "nowhere: cannot be read: No such file or directory"),
        (["a", "b"], "one report at a time; `report merge` joins the shards of a run"),
        (["merge"], "merge takes the reports of all shards and --out FILE"),
        (["merge", "a"], "merge takes the reports of all shards and --out FILE"),
        (["merge", "a", "--out", "b"], "a: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2 and stderr has one line that says why."""
    assert _run(*arguments) == 2
    assert capsys.readouterr().err == f"mtp-conformance report: {reason}\n"


def test_an_edited_report_makes_no_pages(
    report: Report, write_report: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report that is refused is refused here too, with the reason."""
    path = write_report(report)
    path.write_text(path.read_text().replace("0.5", "0.4", 1))
    assert _run(path) == 2
    assert "the digest is not that of the report" in capsys.readouterr().err
    assert [found.name for found in path.parent.iterdir()] == ["report.jsonl"]


def test_a_folder_that_cannot_be_written_is_named(
    report: Report, write_report: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file error is one line too."""
    (tmp_path / "file").write_text("")
    assert _run(write_report(report), "--out", tmp_path / "file") == 2
    assert capsys.readouterr().err == f"mtp-conformance report: {tmp_path / 'file'}: File exists\n"


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows both forms and examples of them."""
    with pytest.raises(SystemExit, match="0"):
        _run("--help")
    assert "mtp-conformance report merge shard-1 shard-2" in capsys.readouterr().out
