"""`mtp-conformance list`: every case with its metadata and number of cells."""

import json
from pathlib import Path

import pytest

from mtp_conformance.commands import list as command
from mtp_conformance.suite import load_cases
from tests.harness.command_line import run

ROOT = Path(__file__).parents[2]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has a line a case, none of them folded, and the totals."""
    assert run(command, "list") == 0
    output = capsys.readouterr().out
    cases = load_cases(ROOT)
    lines = [line for line in output.splitlines() if line.startswith("| ")]
    assert [line.split()[1] for line in lines[1:]] == [known.case.id for known in cases]
    assert f"{len(cases)} cases, " in output.splitlines()[-1]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON every case has all its metadata, where it stands, and how many cells it has."""
    assert run(command, "list", "--json", "--area", "control", "--profile", "smoke") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["profile"] == "smoke"
    case = next(c for c in listed["cases"] if c["id"] == "control.compile.equals-eager")
    assert (case["area"], case["level"], case["clause"]) == ("control", "should", "compilation")
    assert case["cells"] == 1
    assert Path(case["file"]).name == "test_compile.py"


def test_area(capsys: pytest.CaptureFixture[str]) -> None:
    """An area restricts the list to its cases."""
    assert run(command, "list", "--json", "--area", "head") == 0
    ids = [case["id"] for case in json.loads(capsys.readouterr().out)["cases"]]
    assert ids
    assert all(id.startswith("head.") for id in ids)


def test_profile_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """The number of cells is the profile's."""
    counts: list[int] = []
    for profile in ("smoke", "default", "full"):
        run(command, "list", "--json", "--area", "head", "--profile", profile)
        cases = json.loads(capsys.readouterr().out)["cases"]
        counts.append(sum(case["cells"] for case in cases))
    assert counts == sorted(set(counts))


def test_unknown_area(capsys: pytest.CaptureFixture[str]) -> None:
    """An area that does not exist is a usage error that names those that do."""
    assert run(command, "list", "--area", "haed") == 2
    assert "no area haed; there are control, " in capsys.readouterr().err


def test_no_suite(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a suite the command says where it looked."""
    monkeypatch.setenv("MTP_CONFORMANCE_ROOT", str(tmp_path))
    assert run(command, "list") == 2
    assert f"error: MTP_CONFORMANCE_ROOT={tmp_path}" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The help has examples."""
    with pytest.raises(SystemExit, match="0"):
        run(command, "list", "--help")
    assert "mtp-conformance list --area rewind" in capsys.readouterr().out
