"""Reports: the state of the checkout a run was made from."""

import subprocess
from pathlib import Path

import pytest

from mtp_conformance.report import git_state


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_folder_outside_git_has_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a checkout the state is None."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None


def test_a_changed_checkout_is_dirty(tmp_path: Path) -> None:
    """The state holds the commit, and is dirty once a file is added."""
    _git(tmp_path, "init")
    _git(tmp_path, "commit", "--allow-empty", "-m", "start")
    clean = git_state(tmp_path)
    (tmp_path / "new.py").touch()
    dirty = git_state(tmp_path)
    assert clean is not None
    assert dirty is not None
    assert (clean.dirty, dirty.dirty) == (False, True)
    assert clean.commit == dirty.commit
    assert len(clean.commit) == 40
