"""Errors while a session is saved, or restored.

One evaluation of mlx after the other is made to fail, until a call goes through without.
"""

from pathlib import Path

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
    same_state,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.failing import each_failure
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.group import Group, State
from mtp_conformance.protocol import Options
from mtp_conformance.recording import alone, play, require_recorded

SCRIPT = ((3, 1), (2, 0))
"""Rounds as (K, accepted)."""
_grid = spread(models=("attn", *LIFECYCLE_MODELS), not_by_default=LIFECYCLE_MODELS)


@case(
    "lifecycle.exceptions.in-a-save",
    clause="exception-safety",
    needs=("save", "state", "drafts"),
    oracle="a session of its own that makes the same rounds and is never saved",
    witness="evaluations that failed",
    since="0.1.0",
    cells=_grid,
)
def test_in_a_save(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """A save that fails at any evaluation leaves the session, and a file that is old or new.

    The session goes on to the bit, or says no.
    """
    oracles.need(Capability.SAVE, Capability.STATE, Capability.DRAFTS)
    oracles.need_depth(3)
    group, options = oracles.group(cell), oracles.options(cell)
    rounds, file = alone(group, options, SCRIPT), tmp_path / "session"
    older = group.prefilled(options)
    older.save(file)
    old, content = older.state(), file.read_bytes()

    def make() -> CheckedSession:
        file.write_bytes(content)
        session = group.prefilled(options)
        play(session, rounds[:1])
        return session

    for failed, session, done in each_failure(oracles, make, lambda s: _saved(s, file)):
        what = f"evaluation {failed} of the save failed"
        held = _held(group, options, file, what)
        if done is not None or not same_state(held, old):
            expected = f"the state when it was saved ({what})"
            witness.add(compared=require_equal(held, rounds[0].state, what=expected))
        try:
            left = session.state()
        except RuntimeFailure:
            witness.add(failed=1, refused=1, compared=len(held))
            continue
        expected = f"the state before the save ({what})"
        witness.add(failed=1, compared=require_equal(left, rounds[0].state, what=expected))
        expected = f"a session that was never saved ({what})"
        require_recorded(session, rounds[1:], witness, what=expected, first=2)
    witness.require(failed=1)


def _saved(session: CheckedSession, file: Path) -> CheckedSession:
    session.save(file)
    return session


def _held(group: Group, options: Options, file: Path, what: str) -> State:
    """What a file restores to."""
    assert file.is_file(), f"there is no file any more: {what}"
    session = group.open(options)
    session.restore(file)
    return session.state()


@case(
    "lifecycle.exceptions.in-a-restore",
    clause="exception-safety",
    needs=("save", "state", "drafts"),
    oracle="sessions of their own that make the same rounds and are never restored",
    witness="evaluations that failed",
    since="0.1.0",
    cells=_grid,
)
def test_in_a_restore(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """A restore that fails at any evaluation leaves the session as it was, or one that says no.

    The same file restores it afterwards.
    """
    oracles.need(Capability.SAVE, Capability.STATE, Capability.DRAFTS)
    oracles.need_depth(3)
    group, options = oracles.group(cell), oracles.options(cell)
    rounds, file = alone(group, options, SCRIPT), tmp_path / "session"
    saver = group.prefilled(options)
    before = saver.state()
    play(saver, rounds[:1])
    saver.save(file)
    for failed, session, done in each_failure(
        oracles, lambda: group.prefilled(options), lambda session: _restored(session, file)
    ):
        what = f"evaluation {failed} of the restore failed"
        if done is None:
            try:
                left = session.state()
            except RuntimeFailure:
                witness.add(refused=1)
            else:
                expected = f"the state before the restore ({what})"
                compared = require_equal(left, before, what=expected)
                witness.add(compared=compared)
            session = _restored_again(session, group.open(options), file)  # noqa: PLW2901  (compared)
        expected = f"the state when it was saved ({what} before)"
        compared = require_equal(session.state(), rounds[0].state, what=expected)
        witness.add(failed=1, compared=compared)
        expected = f"a session that never stopped ({what} before)"
        require_recorded(session, rounds[1:], witness, what=expected, first=2)
    witness.require(failed=1)


def _restored_again(session: CheckedSession, fresh: CheckedSession, file: Path) -> CheckedSession:
    """The session that takes the file: the one that failed, or another if that one refuses."""
    try:
        return _restored(session, file)
    except RuntimeFailure:
        return _restored(fresh, file)


def _restored(session: CheckedSession, file: Path) -> CheckedSession:
    session.restore(file)
    return session
