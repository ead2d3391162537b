"""Where a runtime has no fork, a copy is decoded again: prompts, rounds, turns and files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance import Cell, Options, Oracles, require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Runtime
from tests.fakes.forks_nothing import FilelessSession, ForksNothing

CELL = Cell("gdn", "tape", None, None, "float32", 5)
Make = Callable[[Runtime], Oracles]


def test_a_copy_of_everything(oracles_of: Make) -> None:
    """Rounds and turns are decoded again, in their order."""
    session = oracles_of(ForksNothing()).group(CELL).prefilled(Options())
    session.round((1, 2))
    session.extend((3, 4))
    session.round(())
    require_equal(session.fork().state(), session.state(), what="the original")


def test_a_copy_of_a_restored_session(oracles_of: Make, tmp_path: Path) -> None:
    """What was saved is decoded again, not what the restoring session had seen."""
    group = oracles_of(ForksNothing()).group(CELL)
    session, other = (group.prefilled(Options()) for _ in range(2))
    session.round((1, 2))
    session.save(tmp_path / "s")
    other.round(())
    other.restore(tmp_path / "s")
    require_equal(other.fork().state(), session.state(), what="the saved session")


def test_no_file(oracles_of: Make, tmp_path: Path) -> None:
    """A save that writes no file is an error of the runtime."""
    session = oracles_of(ForksNothing(FilelessSession)).group(CELL).prefilled(Options())
    with pytest.raises(RuntimeFailure, match="save wrote no file"):
        session.save(tmp_path / "s")
