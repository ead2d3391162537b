"""Rounds, next turns, forks, cancels, saves and restores in any order."""

from mtp_conformance import Capability, Cell, Inconclusive, Oracles, Witness, case
from mtp_conformance.grid import MODELS, spread
from mtp_conformance.story import tell_stories


@case(
    "story.state.any-order",
    clause="transition-closure",
    needs=("state", "drafts"),
    oracle="K=0 of the same runtime after as many tokens; one forward pass over them",
    witness="rejects",
    faults=("R7", "R10", "L11"),
    since="0.1.0",
    cells=spread(models=MODELS),
)
def test_any_order(oracles: Oracles, cell: Cell, witness: Witness, profile: str) -> None:
    """Whatever the order of rounds, forks, cancels, saves, caches are those of the tokens."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    try:
        tell_stories(oracles, cell, witness, profile)
    except AssertionError as error:
        if oracles.condemns(group.key, range(1, 7), error, cell.strategy or "", prefill=True):
            raise
        raise Inconclusive("passes of several rows round otherwise than steps do here") from error
    witness.require(rejected=1)
