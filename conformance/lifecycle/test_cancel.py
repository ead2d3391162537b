"""Rounds that are given up."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.recording import alone, play, require_recorded

BEFORE = ((2, 1),)
AFTER = ((3, 1), (0, 0))
"""Rounds as (K, accepted)."""


@case(
    "lifecycle.cancel.leaves-nothing",
    clause="cancel",
    needs=("cancel", "state", "drafts"),
    oracle="a session of its own that makes the same rounds and cancels none",
    witness="cancelled rounds with right drafts and with wrong ones",
    faults=("L2",),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS, depths=(3,)),
)
def test_leaves_nothing(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After a cancel the caches are at the emitted frontier, and nothing is left of the round.

    Cancelled right after a round, and after the verify pass of one whose drafts are all wrong,
    in part right and all right.
    """
    oracles.need(Capability.CANCEL, Capability.STATE, Capability.DRAFTS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    rounds = alone(group, options, (*BEFORE, *AFTER))
    session = group.open(options)
    session.prefill(group.prompt)
    play(session, rounds[:1])
    emitted, frontier = 1 + len(rounds[0].outcome.tokens), rounds[0].state
    for drafts in ([], *(group.drafts(emitted, k, accepted) for accepted in range(k + 1))):
        session.cancel(drafts)
        what = f"the state before a round with drafts {drafts} was cancelled"
        compared = require_equal(session.state(), frontier, what=what, round=1)
        witness.add(compared=compared, cancelled=int(bool(drafts)))
    what = "a session in which nothing was cancelled"
    require_recorded(session, rounds[1:], witness, what=what, first=2)
    witness.require(cancelled=k + 1, rejected=1)
