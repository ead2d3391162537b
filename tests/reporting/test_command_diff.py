"""``mtp-conformance diff``: an exit code that says whether anything got worse."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance.commands import diff as command
from mtp_conformance.report import Report, Result, manifest_hash
from mtp_conformance.verdict import Verdict

Write = Callable[[Report], Path]


def _run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["diff", *map(str, arguments)])
    return parsed.run(parsed)


@pytest.fixture
def paths(make_report: Callable[..., Report], write_report: Write) -> list[Path]:
    """Return a passing report, a failing one, and one of another manifest."""
    verdicts = (Verdict.PASS, Verdict.FAIL)
    results = [Result("stream.greedy.own-drafts", {"k": 1}, verdict, 0.5) for verdict in verdicts]
    passing, failing = (make_report(result) for result in results)
    header = replace(passing.header, manifest=manifest_hash(passing.cases[1:]))
    other = replace(passing, cases=passing.cases[1:], header=header)
    return [write_report(report) for report in (passing, failing, other)]


@pytest.mark.parametrize(("old", "new", "code"), [(0, 0, 0), (1, 0, 0), (0, 1, 1)])
def test_worse_is_one(paths: list[Path], old: int, new: int, code: int) -> None:
    """Nothing worse is 0, anything worse is 1."""
    assert _run(paths[old], paths[new]) == code


def test_a_machine_gets_json(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one JSON object, with the same exit code; folders stand for reports."""
    assert _run(paths[0].parent, paths[1].parent, "--json") == 1
    assert json.loads(capsys.readouterr().out)["broken"][0]["after"] == "fail"


def test_two_manifests_are_two(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Unequal manifests are refused with 2 and compared when allowed."""
    assert _run(paths[0], paths[2]) == 2
    assert "only in the old one: rewind.recurrent.reject-all" in capsys.readouterr().err
    assert _run(paths[0], paths[2], "--allow-manifest-change") == 0


def test_a_file_that_is_no_report_is_two(
    paths: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A report that is refused is named in one line."""
    assert _run(paths[0], "nowhere") == 2
    error = "mtp-conformance diff: nowhere: cannot be read: No such file or directory\n"
    assert capsys.readouterr().err == error
