"""`nox -s golden`: whole, tested, or not at all."""

import importlib.util
import json
import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

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


def test_options_and_plugins_of_the_environment_are_dropped(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pytest would take from the environment reaches no run."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k one")
    monkeypatch.setenv("PYTEST_PLUGINS", "another")
    assert session.environment()[session.PERMISSION] == "1"
    assert not [name for name in session.environment() if name.startswith("PYTEST_")]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_puts_back_and_a_second_one_is_ignored(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, first: signal.Signals
) -> None:
    """SIGTERM and SIGHUP are like Ctrl-C; what follows while things are put back is ignored."""
    before = _contents(session.ROOT)
    handlers = [signal.getsignal(number) for number in session.SIGNALS]
    _calls(session, monkeypatch)
    called = session.subprocess.call

    def call(*words: Any, **options: Any) -> int:
        code = called(*words, **options)
        os.kill(os.getpid(), first)
        return code

    rename, seen = Path.rename, list[Path]()

    def renamed(path: Path, target: Path) -> Path:
        seen.append(path)
        if "places.json" not in target.name:
            for number in session.SIGNALS:
                os.kill(os.getpid(), number)
        return rename(path, target)

    monkeypatch.setattr(session.subprocess, "call", call)
    monkeypatch.setattr(Path, "rename", renamed)
    assert session.main([]) == 130
    assert _contents(session.ROOT) == before
    assert len(seen) == 6  # the list, two places out and in, the new one out
    assert [signal.getsignal(number) for number in session.SIGNALS] == handlers


def _killed(session: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a run leaves that was killed when everything had changed."""
    kept = session.keep()
    _calls(session, monkeypatch)
    session.subprocess.call(["a"], cwd=session.ROOT, env=session.environment())
    return kept


def test_a_killed_run_is_put_back_by_the_next(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it had kept is in its place before anything else is done."""
    before = _contents(session.ROOT)
    _killed(session, monkeypatch)
    assert _contents(session.ROOT) != before
    session.recover()
    assert _contents(session.ROOT) == before
    assert "an earlier run was killed; put back" in capsys.readouterr().out
    session.recover()
    assert _contents(session.ROOT) == before


@pytest.mark.parametrize("renames", range(5))
def test_putting_back_may_be_killed_anywhere(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """After any number of its renames the next run completes it, and deletes nothing kept."""
    before = _contents(session.ROOT)
    kept = _killed(session, monkeypatch)
    rename, left = Path.rename, iter(range(renames))

    def until(path: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise OSError("killed")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", until)
        with pytest.raises(OSError, match="killed"):
            session.put_back(kept)
    session.recover()
    assert _contents(session.ROOT) == before


def test_a_run_killed_before_or_after_its_work_changed_nothing(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the list of places there is nothing to put back: what is there stays."""
    kept = _killed(session, monkeypatch)
    after = {n: c for n, c in _contents(session.ROOT).items() if not n.startswith(kept.name)}
    (kept / session.PLACES).unlink()
    session.recover()
    assert _contents(session.ROOT) == after


def test_a_run_that_goes_on_is_not_disturbed(
    session: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two at a time are refused, and nothing is put back from under the first one."""
    kept = session.keep()
    (kept / session.PLACES).write_text(json.dumps({"process": os.getppid(), "places": []}))
    seen = _calls(session, monkeypatch)
    assert session.main([]) == 2
    assert f"process {os.getppid()} is making goldens" in capsys.readouterr().err
    assert seen == []
    assert kept.is_dir()
