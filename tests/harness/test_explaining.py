"""What there is to say about a case: refusals, and the command of a suite that is installed."""

from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance.case import Case, Level, Registration
from mtp_conformance.explaining import command, explain
from mtp_conformance.suite import SuiteError

ROOT = Path(__file__).parents[2]
CASE = Case("a.b.c", "determinism", Level.MUST, (), "A", "w", ("N9",), "0.1.0", "It holds.")
FILE = ROOT / "conformance" / "test_it.py"


def _registration(case: Case) -> Registration:
    return Registration(case, None, (str(FILE), "test_it", 1))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (replace(CASE, clause="nowhere"), "there is no clause `nowhere`"),
        (replace(CASE, faults=("R999",)), "there is no fault R999"),
    ],
)
def test_refers_to_nothing(case: Case, message: str) -> None:
    """A case that names what does not exist is refused."""
    with pytest.raises(SuiteError, match=message):
        explain(ROOT, _registration(case))


def test_fault_named_twice() -> None:
    """A fault that both the case and its clause name appears once."""
    assert [fault.id for fault in explain(ROOT, _registration(CASE)).faults] == ["N9"]


def test_command_without_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no pyproject.toml loads the plugin the command does, by absolute path from afar."""
    monkeypatch.chdir(tmp_path)
    text = command(tmp_path, _registration(CASE), "default")
    assert text == (f"python -m pytest -p mtp_conformance.plugin {FILE}::test_it --profile default")
