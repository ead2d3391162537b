"""Snapshots are written by `nox -s golden` alone."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import PERMISSION, pytest_configure
from tests.golden.conftest import ROOT


def _config(**options: object) -> pytest.Config:
    usual: dict[str, object] = {"update_snapshots": False, "update_new_snapshots_only": False}
    return cast("Any", SimpleNamespace(option=SimpleNamespace(**{**usual, **options})))


def test_without_writing_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing with snapshots needs no permission, and takes any filter."""
    monkeypatch.delenv(PERMISSION, raising=False)
    pytest_configure(_config(keyword="one"))


@pytest.mark.parametrize("option", ["update_snapshots", "update_new_snapshots_only"])
def test_writing_needs_permission(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Both options of syrupy that write are refused."""
    monkeypatch.delenv(PERMISSION, raising=False)
    with pytest.raises(pytest.UsageError, match=r"noxfile\.py -s golden"):
        pytest_configure(_config(**{option: True}))


@pytest.mark.parametrize(
    "filters",
    [
        {"keyword": "a"},
        {"markexpr": "a"},
        {"lf": True},
        {"failedfirst": True},
        {"deselect": ["a"]},
        {"ignore": ["a"]},
        {"ignore_glob": ["a"]},
        {"stepwise": True},
        {"collectonly": True},
        {"setuponly": True},
        {"setupplan": True},
        {"numprocesses": 2},
        {"case": ["a"]},
        {"profile": "full"},
        {"runtime": "another"},
        {"device": "gpu"},
        {"seed": 1},
        {"inifilename": "another.ini"},
    ],
    ids=lambda filters: next(iter(filters)),
)
def test_writing_is_whole(monkeypatch: pytest.MonkeyPatch, filters: dict[str, object]) -> None:
    """With permission, too, a filter or a second process is refused."""
    monkeypatch.setenv(PERMISSION, "1")
    usual = {"keyword": "", "deselect": None, "case": [], "numprocesses": 0, "profile": "default"}
    pytest_configure(_config(update_snapshots=True, **usual))
    with pytest.raises(pytest.UsageError, match="whole and by one process"):
        pytest_configure(_config(update_snapshots=True, **filters))


def test_in_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pytest --snapshot-update` ends with a usage error."""
    monkeypatch.delenv(PERMISSION, raising=False)
    command = [sys.executable, "-m", "pytest", "tests/golden/test_comparing.py", "-n", "0"]
    done = subprocess.run(
        [*command, "--snapshot-update"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "noxfile.py -s golden" in done.stderr
