"""A fork and the session it came from."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.recording import alone, play, require_recorded

BEFORE = ((3, 1), (2, 2))
STAYING = ((2, 1), (0, 0), (3, 0))
LEAVING = ((3, 3), (1, 0), (2, 2))
"""Rounds as (K, accepted): before the fork, of the original, of the fork."""


@case(
    "lifecycle.fork.as-if-alone",
    clause="lifecycle-fork",
    needs=("fork", "state", "drafts"),
    oracle="sessions of their own that make the same rounds and are never forked",
    witness="accepts and rejects",
    faults=("L11", "L12", "P3"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS),
)
def test_as_if_alone(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Whichever of the two moves first, fork and original go on as if there were no other."""
    oracles.need(Capability.FORK, Capability.STATE, Capability.DRAFTS)
    group, options = oracles.group(cell), oracles.options(cell)
    oracles.need_depth(3)
    begun = len(BEFORE)
    staying = alone(group, options, (*BEFORE, *STAYING))
    leaving = alone(group, options, (*BEFORE, *LEAVING))[begun:]
    for fork_first in (True, False):
        original = group.open(options)
        original.prefill(group.prompt)
        play(original, staying[:begun])
        fork = original.fork()
        for session in (fork, original):
            what = "a session never forked, at the place of the fork"
            compared = require_equal(session.state(), staying[begun - 1].state, what=what)
            witness.add(compared=compared)
        pairs = [
            (fork, leaving, "the fork's rounds in a session never forked"),
            (original, staying[begun:], "the original's rounds in a session never forked"),
        ]
        for session, rounds, what in pairs if fork_first else pairs[::-1]:
            require_recorded(session, rounds, witness, what=what, first=begun + 1)
        for session, rounds, what in pairs:
            late = f"{what}, now that the other has moved as well"
            witness.add(compared=require_equal(session.state(), rounds[-1].state, what=late))
    witness.require(accepted=1, rejected=1)
