"""`python -m tests.faults` and `mtp-conformance faults`."""

import json
from pathlib import Path

import pytest

from mtp_conformance.__main__ import main as harness
from tests.faults.__main__ import main
from tests.faults.registry import not_seeded


def test_the_matrix_of_one_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`mtp-conformance faults` runs the faults of the checkout and hands on their JSON."""
    options = ["--only", "shift-kv-behind", "--json", "--quiet", "-n", "1", "--out", str(tmp_path)]
    assert harness(["faults", *options]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record == json.loads((tmp_path / "faults.json").read_text())
    assert [fault["id"] for fault in record["faults"]] == ["shift-kv-behind"]
    assert record["survivors"] == []


def test_a_public_fault_that_is_not_seeded(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for a fault that cannot exist here, it says why."""
    assert main(["--only", "R9"]) == 2
    assert not_seeded()["R9"] in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--only", "nobody"], ["-n", "0"]])
def test_wrong_arguments(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown fault or no worker is a usage error."""
    assert main(options) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` names what would run."""
    assert main(["--list", "--only", "R13"]) == 0
    assert capsys.readouterr().out == "partial-commit-is-bookkeeping  R13  boundary-shift\n"


def test_an_installed_suite_has_no_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the project's tests there is nothing to seed, and it says so."""
    for room in ("conformance", "reference_models"):
        (tmp_path / room).mkdir()
    monkeypatch.setenv("MTP_CONFORMANCE_ROOT", str(tmp_path))
    assert harness(["faults"]) == 2
    assert "run in its checkout" in capsys.readouterr().err
