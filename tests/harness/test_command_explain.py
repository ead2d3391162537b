"""`mtp-conformance explain CASE`: what a case requires, why, and how to run one cell of it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mtp_conformance.case import Case
from mtp_conformance.commands import explain as command
from mtp_conformance.gate.checks import CHECKS
from tests.harness.command_line import run

ROOT = Path(__file__).parents[2]
CASE = "rewind.state.one-round"


@pytest.fixture(autouse=True)
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where commands can be pasted."""
    monkeypatch.chdir(ROOT)


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The text has clause, level, requirement, reason, oracle, witness, needs and faults."""
    assert run(command, "explain", CASE) == 0
    output = capsys.readouterr().out
    for line in (
        "  clause    rewound-state (must)",
        "  requires  After a round every array",
        "  reason    A rejected draft that stays",
        "  oracle    ",
        "  witness   ",
        "  needs     state, drafts",
        " *R1 gdn-trim-noop-leaks-rejected",
        "      https://github.com/ml-explore/mlx-lm/pull/1109",
    ):
        assert f"\n{line}" in output


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON the clause and every fault are whole; the faults of the case come first."""
    assert run(command, "explain", CASE, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["clause"]["anchor"] == "rewound-state"
    named = record["named_faults"]
    assert [fault["id"] for fault in record["faults"]][: len(named)] == named
    assert record["faults"][0]["sources"][0].startswith("https://")


def test_command_runs_one_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """The command, pasted, is about one cell that exists."""
    run(command, "explain", CASE, "--json")
    words = shlex.split(json.loads(capsys.readouterr().out)["command"])
    assert words[0] == "python"
    done = subprocess.run(
        [sys.executable, *words[1:], "--collect-only", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == words[3]


def test_unknown_case(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown id is a usage error that offers what is near to it."""
    assert run(command, "explain", "rewind.state.oneround") == 2
    assert f"no case rewind.state.oneround; did you mean {CASE}" in capsys.readouterr().err


def test_nothing_near(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is near, the error says where all ids are."""
    assert run(command, "explain", "zzz") == 2
    assert "`mtp-conformance list` has all ids" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The help has examples."""
    with pytest.raises(SystemExit, match="0"):
        run(command, "explain", "--help")
    assert f"mtp-conformance explain {CASE} --json" in capsys.readouterr().out


@pytest.mark.parametrize("case", [check.case for check in CHECKS], ids=lambda case: case.id)
def test_a_check_of_the_gate(capsys: pytest.CaptureFixture[str], case: Case) -> None:
    """What the gate holds a checkpoint to is explained too: its clause, and the command."""
    assert run(command, "explain", case.id) == 0
    output = capsys.readouterr().out
    assert f"  clause    {case.clause} ({case.level})" in output
    assert output.endswith("  mtp-conformance gate --model DIR --k 1,2,3\n")
