"""Tokens with the head's own drafts against K=0."""

from collections.abc import Sequence

from mtp_conformance import Capability, Cell, Group, Oracles, Witness, case, require_stream
from mtp_conformance.grid import AGREEING_MODELS, spread, with_trained

LENGTHS = (32, 128)
"""Tokens; the second where every draft of the first stood, or none, then of other prompts."""


@case(
    "stream.greedy.own-drafts",
    clause="greedy-stream",
    needs=("stream",),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects of the head's own drafts, from models whose head is often right",
    since="0.1.0",
    cells=with_trained(spread(models=AGREEING_MODELS, depths=(1, 2, 3, 5)), depths=(1, 2, 3, 5)),
)
def test_own_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Greedy decoding with the head's own drafts emits the tokens of K=0."""
    oracles.need(Capability.STREAM)
    for group, length in oracles.until_seen(cell, witness, LENGTHS):

        def decode(k: int, group: Group = group, length: int = length) -> Sequence[int]:
            session = group.open(oracles.options(cell))
            made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=length)
            witness.add(**made.engagement)
            return made.tokens[:length]

        compared = require_stream(oracles, cell, group, decode(cell.k or 0), decode)
        witness.add(compared=compared)
    witness.require(accepted=1, rejected=1)
