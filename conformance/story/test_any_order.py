"""Rounds, next turns, forks, cancels, saves and restores in any order."""

from mtp_conformance import Capability, Cell, Inconclusive, Oracles, Witness, case
from mtp_conformance.grid import MODELS, spread
from mtp_conformance.story import tell_stories, told_of_a_prefill


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
    try:
        _tell(oracles, cell, witness, profile)
    except _OfAPrompt as error:  # what else there is to tell has no part in that
        _tell(oracles, cell, witness, profile, turns=False)
        raise Inconclusive(
            "passes over prompt tokens, as a next turn is, round otherwise than steps do here; "
            "stories without a next turn hold"
        ) from error
    witness.require(rejected=1)


class _OfAPrompt(Exception):
    """A story in which passes over prompt tokens may have rounded otherwise than steps."""


def _tell(
    oracles: Oracles, cell: Cell, witness: Witness, profile: str, *, turns: bool = True
) -> None:
    group = oracles.group(cell)
    try:
        tell_stories(oracles, cell, witness, profile, turns=turns)
    except AssertionError as error:
        strategy, prefill = cell.strategy or "", told_of_a_prefill(error)
        if oracles.condemns(group.key, range(1, 7), error, strategy, prefill=prefill):
            raise
        if prefill and turns:
            raise _OfAPrompt from error
        raise Inconclusive("passes of several rows round otherwise than steps do here") from error
