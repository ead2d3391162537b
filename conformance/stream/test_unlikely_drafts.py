"""Tokens with the head's own drafts, of models whose head is hardly ever right."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_stream
from mtp_conformance.grid import spread

LENGTH = 16


@case(
    "stream.greedy.unlikely-drafts",
    clause="greedy-stream",
    needs=("stream",),
    oracle="K=0 of the same runtime",
    witness="rejects; a random head's drafts are seldom right",
    since="0.1.0",
    cells=spread(depths=(3,)),
)
def test_unlikely_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Greedy decoding with drafts that are nearly all rejected emits the tokens of K=0."""
    oracles.need(Capability.STREAM)
    group = oracles.group(cell)

    def decode(k: int) -> tuple[int, ...]:
        session = group.open(oracles.options(cell))
        made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=LENGTH)
        witness.add(**made.engagement)
        return made.tokens[:LENGTH]

    compared = require_stream(oracles, cell, group, decode(cell.k or 0), decode)
    witness.add(compared=compared)
    witness.require(drafted=1, rejected=1)
