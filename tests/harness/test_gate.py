"""The pre-merge gate: one line a step, one verdict, the first failure's command last."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

GATE = Path(__file__).parents[2] / ".ci" / "gate.py"


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The gate, with its logs in a folder of the test's."""
    spec = importlib.util.spec_from_file_location("gate", GATE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gate", module)  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    return module


def _step(gate: ModuleType, name: str, code: str) -> object:
    return gate.Step(name, (sys.executable, "-c", code), f"run {name} again")


def test_every_step_holds(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All steps run and the verdict is pass."""
    steps = [_step(gate, "one", "print('a')"), _step(gate, "two", "print('b')")]
    monkeypatch.setattr(gate, "STEPS", steps)
    assert gate.main() == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[:9].rstrip() for line in shown] == ["ok    one", "ok    two", "gate: pas"]


def test_failing_step(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Later steps still run; the first failure's output and command come last."""
    steps = [
        _step(gate, "one", "print('what went wrong'); raise SystemExit(1)"),
        _step(gate, "two", "pass"),
        gate.Step("three", ("no-such-program-here",), "run three again"),
    ]
    monkeypatch.setattr(gate, "STEPS", steps)
    assert gate.main() == 1
    shown = capsys.readouterr().out
    assert "gate: FAIL (one, three)" in shown
    assert "ok    two" in shown
    assert "what went wrong" in shown
    assert shown.splitlines()[-1] == "reproduce: run one again"


def test_failing_conformance_step_names_its_cell(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failing cell's own command where the report has one."""
    (gate.LOGS / "run").mkdir(parents=True)
    line = '{"type": "result", "failure": {"command": "mtp-conformance run --case x"}}\n'
    (gate.LOGS / "run" / "report.jsonl").write_text(line)
    monkeypatch.setattr(gate, "STEPS", [_step(gate, "conformance", "raise SystemExit(1)")])
    assert gate.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "reproduce: mtp-conformance run --case x"
