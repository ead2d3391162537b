"""Tokens of rounds with drafts, right and wrong, against K=0."""

from collections.abc import Sequence

from mtp_conformance import Capability, Cell, Group, Oracles, Witness, case, require_stream
from mtp_conformance.grid import DEPTHS, QUICK, TRAINED_MODELS, spread, with_trained
from mtp_conformance.near_tie import MOST_ULPS, runners_up

LENGTH = 20
TRAINED_LENGTH = 100
"""Tokens of a trained model, among which some nearly tie with another."""


def _cells(profile: str) -> Sequence[Cell]:
    """Every K; where a person waits, not those between others."""
    depths = (1, 2, 3, 5, 8) if profile in QUICK else DEPTHS
    return with_trained(spread(depths=depths), depths=(1, 2, 3, 5, 8))(profile)


@case(
    "stream.greedy.guessed-drafts",
    clause="greedy-stream",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects; of trained models rejects of runners-up that nearly tie",
    faults=("R1", "R12"),
    since="0.1.0",
    cells=_cells,
)
def test_guessed_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Greedy decoding with partly right drafts emits the tokens of K=0, for every K."""
    oracles.need(Capability.STREAM, Capability.GUESS)
    trained = cell.model in TRAINED_MODELS
    if trained:
        oracles.need(Capability.LOGITS, Capability.DRAFTS)
    length = TRAINED_LENGTH if trained else LENGTH
    seen = ("accepted", "rejected", "near") if trained else ("accepted", "rejected")
    for group, _ in oracles.until_seen(cell, witness, [length], seen):
        guess = _nearly_right(group, witness) if trained else _partly_right(group)

        def decode(k: int, group: Group = group, guess: Sequence[int] = guess) -> Sequence[int]:
            made = group.open(oracles.options(cell)).generate(
                group.prompt, num_draft_tokens=k, max_tokens=length, guess=guess
            )
            witness.add(**made.engagement)
            return made.tokens[:length]

        compared = require_stream(oracles, cell, group, decode(cell.k or 0), decode)
        witness.add(compared=compared)
    witness.require(**dict.fromkeys(seen, 1))


def _partly_right(group: Group) -> Sequence[int]:
    """K=0's tokens, but for every fifth."""
    return [(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(group.stream(LENGTH))]


def _nearly_right(group: Group, witness: Witness) -> Sequence[int]:
    """K=0's tokens, but the runner-up where it is nearest to the likeliest one."""
    guess = list(group.stream(TRAINED_LENGTH))
    for race in runners_up(group, TRAINED_LENGTH)[: TRAINED_LENGTH // 5]:
        guess[race.index] = race.token
        witness.add(near=int(race.ulps <= MOST_ULPS))
    return guess
