"""From a report to known failures: every failing cell, no other, in few entries."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mtp_conformance.case import Level
from mtp_conformance.commands import report as command
from mtp_conformance.known import judge, read_known
from mtp_conformance.known_draft import Draft, draft
from mtp_conformance.report import Failure, Report, Result
from mtp_conformance.verdict import Verdict
from tests.harness.command_line import run

CASE = "rewind.recurrent.reject-all"
COMMON = Draft("https://example.org/1", "somebody", "2999-12-31", "It is being dealt with.")
Make = Callable[..., Report]


def _result(verdict: Verdict, message: str, **params: Any) -> Result:
    failure = Failure(message, "again") if verdict in (Verdict.FAIL, Verdict.ERROR) else None
    return Result(CASE, params, verdict, 0.1, {}, failure)


def _failing(make_report: Make) -> Report:
    cells: list[Result] = []
    for model in ("gdn", "attn"):
        for k in (1, 2, 3):
            for strategy in ("copy", "trim"):
                wrong = model == "gdn" and strategy == "trim" and k > 1
                verdict = Verdict.FAIL if wrong else Verdict.PASS
                message = f"layers.0 recurrent differs in round {k}"
                cells.append(_result(verdict, message, model=model, k=k, strategy=strategy))
    return make_report(*cells)


def test_entries_cover_what_fails_and_nothing_else(make_report: Make, tmp_path: Path) -> None:
    """With the entries every failing cell is an xfail, and no passing one an xpass."""
    report = _failing(make_report)
    file = tmp_path / "known.toml"
    file.write_text(draft(report, COMMON))
    entries = read_known([file])
    assert len(entries) == 2
    for result in report.results:
        listed = [entry for entry in entries if entry.covers(result.case, result.params)]
        message = result.failure.message if result.failure else ""
        judged = judge(listed, result.verdict, message, entries[0].expires)
        wanted = Verdict.XFAIL if result.verdict is Verdict.FAIL else Verdict.PASS
        assert judged.verdict is wanted


def test_one_cause_everywhere_is_one_entry(make_report: Make, tmp_path: Path) -> None:
    """Where all cells fail alike no parameter is named."""
    cells = [_result(Verdict.ERROR, "cannot open it: no head", model=m) for m in ("gdn", "attn")]
    file = tmp_path / "known.toml"
    file.write_text(draft(make_report(*cells), COMMON))
    (entry,) = read_known([file])
    assert (dict(entry.params), entry.message) == ({}, "cannot open it: no head")


def test_unlike_messages_are_told_apart(make_report: Make, tmp_path: Path) -> None:
    """Cells that fail in different ways have entries of their own."""
    cells = [
        _result(Verdict.FAIL, "layers.0 recurrent differs", model="gdn"),
        _result(Verdict.FAIL, "emitted token 4 is 3", model="attn"),
    ]
    file = tmp_path / "known.toml"
    file.write_text(draft(make_report(*cells), COMMON))
    assert {entry.params["model"] for entry in read_known([file])} == {"gdn", "attn"}


def test_recommended_cases_are_not_listed(make_report: Make) -> None:
    """What is only recommended may fail without being known."""
    advice = next(c.id for c in make_report().cases if c.level is Level.SHOULD)
    failing = replace(_result(Verdict.FAIL, "differs", model="gdn"), case=advice)
    assert draft(make_report(failing), COMMON) == ""


def test_command(
    make_report: Make,
    write_report: Callable[[Report], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`report known` writes a file that can be read, and never over another one."""
    words = ["--url", "https://example.org/1", "--owner", "me", "--expires", "2999-12-31"]
    folder, out = write_report(_failing(make_report)).parent, tmp_path / "known.toml"
    call = ("report", "known", str(folder), "--out", str(out), *words)
    assert run(command, *call) == 0
    assert "2 entries in" in capsys.readouterr().out
    assert run(command, *call) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(command, "report", "known", str(folder), "--out", str(tmp_path / "x")) == 2
    clean = write_report(make_report(_result(Verdict.PASS, "", model="gdn"))).parent
    other = ("report", "known", str(clean), "--out", str(tmp_path / "x"), *words)
    assert run(command, *other) == 2
    assert "no required case fails in it" in capsys.readouterr().err
