"""Where the suite root is looked for, and in which order."""

from pathlib import Path

import pytest

from mtp_conformance import suite

CHECKOUT = Path(__file__).resolve().parents[2]


def _make_root(folder: Path) -> Path:
    for room in ("conformance", "reference_models"):
        (folder / room).mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run without the variable, in a folder that is no checkout."""
    monkeypatch.delenv(suite.ENVIRONMENT, raising=False)
    monkeypatch.chdir(tmp_path)


def test_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variable names the root, whatever the current folder is."""
    root = _make_root(tmp_path / "there")
    monkeypatch.setenv(suite.ENVIRONMENT, str(root))
    monkeypatch.chdir(CHECKOUT)
    assert suite.suite_root() == root


def test_environment_without_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names a folder without a suite is an error, not a hint."""
    monkeypatch.setenv(suite.ENVIRONMENT, str(tmp_path))
    with pytest.raises(suite.SuiteError, match=f"{suite.ENVIRONMENT}=.*no conformance/"):
        suite.suite_root()


def test_checkout_of_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anywhere inside a checkout its root is found."""
    root = _make_root(tmp_path / "checkout")
    monkeypatch.chdir(root / "conformance")
    assert suite.suite_root() == root


def test_checkout_of_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside any checkout the one that the package lies in is found."""
    assert suite.suite_root() == CHECKOUT


def test_installed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package carries its own copy."""
    package = tmp_path / "site-packages" / "mtp_conformance"
    root = _make_root(package / "_suite")
    monkeypatch.setattr(suite, "_PACKAGE", package)
    assert suite.suite_root() == root


def test_no_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no suite the error says what to set."""
    monkeypatch.setattr(suite, "_PACKAGE", tmp_path)
    with pytest.raises(suite.SuiteError, match=f"set {suite.ENVIRONMENT}"):
        suite.suite_root()
