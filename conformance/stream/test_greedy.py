"""Tokens of rounds with drafts, right and wrong, against K=0."""

from collections.abc import Sequence

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_stream
from mtp_conformance.grid import DEPTHS, QUICK, spread

LENGTH = 20


def _cells(profile: str) -> Sequence[Cell]:
    """Every K; where a person waits, not those between others."""
    depths = (1, 2, 3, 5, 8) if profile in QUICK else DEPTHS
    return spread(depths=depths)(profile)


@case(
    "stream.greedy.guessed-drafts",
    clause="greedy-stream",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects",
    faults=("R1", "R12"),
    since="0.1.0",
    cells=_cells,
)
def test_guessed_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Greedy decoding with partly right drafts emits the tokens of K=0, for every K."""
    oracles.need(Capability.STREAM, Capability.GUESS)
    group = oracles.group(cell)
    guess = [(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(group.stream(LENGTH))]

    def decode(k: int) -> Sequence[int]:
        session = group.open(oracles.options(cell))
        made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess)
        witness.add(**made.engagement)
        return made.tokens[:LENGTH]

    compared = require_stream(oracles, cell, group, decode(cell.k or 0), decode)
    witness.add(compared=compared)
    witness.require(accepted=1, rejected=1)
