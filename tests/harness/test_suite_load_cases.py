"""Cases are found by importing what lies under a suite root."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtp_conformance.suite import SuiteError, load_cases

CASE = """
from mtp_conformance import case

@case("{id}", clause="c", oracle="A", witness="w", since="0.1.0")
def test_it(witness):
    '''It holds.'''
"""


def _forget() -> dict[str, object]:
    names = [name for name in sys.modules if name.partition(".")[0] == "conformance"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a suite root with no case yet; forget what was imported from it."""
    for folder in ("conformance", "conformance/area"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    modules = _forget()
    yield tmp_path
    _forget()
    sys.modules.update(modules)  # type: ignore[arg-type] -- what was taken out of it


def test_cases_by_id(root: Path) -> None:
    """Cases of every folder come sorted by id, each with the file that declares it."""
    (root / "conformance" / "test_last.py").write_text(CASE.format(id="z.b.c"))
    (root / "conformance" / "area" / "test_first.py").write_text(CASE.format(id="a.b.c"))
    (root / "conformance" / "area" / "helper.py").write_text("raise ImportError")
    first, last = load_cases(root)
    assert (first.case.id, last.case.id) == ("a.b.c", "z.b.c")
    assert first.origin[0] == str(root / "conformance" / "area" / "test_first.py")


def test_broken_file(root: Path) -> None:
    """A case file that cannot be imported is named, with the error."""
    (root / "conformance" / "test_broken.py").write_text("1 / 0")
    with pytest.raises(SuiteError, match=r"test_broken\.py: ZeroDivisionError"):
        load_cases(root)


def test_another_suite(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A suite that shares its module names with one already imported is refused."""
    (root / "conformance" / "test_it.py").write_text(CASE.format(id="a.b.c"))
    load_cases(root)
    other = tmp_path_factory.mktemp("other")
    (other / "conformance").mkdir()
    (other / "conformance" / "test_it.py").write_text(CASE.format(id="a.b.d"))
    with pytest.raises(SuiteError, match=r"is imported from .* already"):
        load_cases(other)
