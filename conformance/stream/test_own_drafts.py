"""Tokens with the head's own drafts against K=0."""

from mtp_conformance import Capability, Cell, Options, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 24


@case(
    "stream.greedy.own-drafts",
    clause="greedy-stream",
    needs=("stream",),
    oracle="K=0 of the same runtime",
    witness="rejects; a random head's drafts are seldom right",
    since="0.1.0",
    cells=spread(depths=(1, 3, 8)),
)
def test_own_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Greedy decoding with the head's own drafts emits the tokens of K=0."""
    oracles.need(Capability.STREAM)
    group = oracles.group(cell)
    session = group.open(Options(strategy=cell.strategy or "tape"))
    tokens = session.generate(group.prompt, num_draft_tokens=cell.k or 0, max_tokens=LENGTH)
    compared = require_tokens(tokens, group.stream(LENGTH), what="K=0")
    witness.add(compared=compared, **session.engagement())
    witness.require(drafted=1, rejected=1)
