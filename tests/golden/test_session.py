"""`nox -s golden`: whole, tested, or not at all."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SESSION = Path(__file__).parents[2] / ".ci" / "golden.py"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, in a checkout of the test's with a golden and a snapshot."""
    spec = importlib.util.spec_from_file_location("golden_session", SESSION)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for file in ("golden/manifest.json", "tests/a/__snapshots__/test_a.ambr"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("old")
    return module


def _contents(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def _calls(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, failing: str = "", error: str = ""
) -> list[list[str]]:
    """Let commands change both places; the one with `failing` in it fails or is interrupted."""
    seen: list[list[str]] = []

    def call(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> int:
        seen.append(command[1:])
        if env is not None:
            assert env[session.PERMISSION] == "1"
            (cwd / "golden" / "manifest.json").write_text("new")
            (cwd / "tests/a/__snapshots__/test_a.ambr").write_text("new")
            (cwd / "tests/b/__snapshots__").mkdir(parents=True, exist_ok=True)
            (cwd / "tests/b/__snapshots__/test_b.ambr").write_text("new")
        if failing and failing in command:
            if error:
                raise KeyboardInterrupt
            return 1
        return 0

    monkeypatch.setattr(session.subprocess, "call", call)
    return seen


@pytest.mark.parametrize("words", [["-k", "gdn"], ["-n", "4"], ["tests/golden"], ["--prune", "-x"]])
def test_filters_are_refused(
    session: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    """Part of the goldens cannot be made: nothing runs."""
    seen = _calls(session, monkeypatch)
    assert session.main(words) == 2
    assert "made whole or not at all" in capsys.readouterr().err
    assert seen == []


def test_whole(session: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goldens are made, everything is tested in one process, and the difference is shown."""
    seen = _calls(session, monkeypatch)
    assert session.main([]) == 0
    assert seen[0] == ["-m", "mtp_conformance", "golden", "update"]
    assert seen[1][:6] == ["-m", "pytest", "tests", "conformance", "-n", "0"]
    assert seen[1][-2:] == ["--snapshot-update", "--snapshot-no-cleanup"]
    assert seen[2][:5] == ["-m", "mtp_conformance", "golden", "diff", "--folder"]
    assert [command[:3] for command in seen[3:]] == [["-u", "-r", "-N"]] * 2
    assert _contents(session.ROOT)["golden/manifest.json"] == "new"


def test_pruning_is_asked_for(session: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `--prune` lets goldens and snapshots be removed."""
    seen = _calls(session, monkeypatch)
    assert session.main(["--prune"]) == 0
    assert seen[0][-1] == "--prune"
    assert "--snapshot-no-cleanup" not in seen[1]


@pytest.mark.parametrize(("error", "code"), [("", 1), ("interrupt", 130)])
@pytest.mark.parametrize("failing", ["update", "pytest"])
def test_nothing_changes_where_anything_fails(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, failing: str, error: str, code: int
) -> None:
    """A failing test, or Ctrl-C, puts goldens and snapshots back as they were."""
    before = _contents(session.ROOT)
    _calls(session, monkeypatch, failing, error)
    assert session.main([]) == code
    assert _contents(session.ROOT) == before
