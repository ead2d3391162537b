"""Tokens of rounds with drafts, right and wrong, against K=0."""

from mtp_conformance import Capability, Cell, Options, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import DEPTHS, spread

LENGTH = 20


@case(
    "stream.greedy.guessed-drafts",
    clause="greedy-stream",
    needs=("stream", "drafts"),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects",
    faults=("R1", "R12"),
    since="0.1.0",
    cells=spread(depths=DEPTHS),
)
def test_guessed_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Greedy decoding with partly right drafts emits the tokens of K=0, for every K."""
    oracles.need(Capability.STREAM, Capability.DRAFTS)
    group = oracles.group(cell)
    stream, k = group.stream(LENGTH), cell.k or 0
    guess = [(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(stream)]
    session = group.open(Options(strategy=cell.strategy or "tape"))
    tokens = session.generate(group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess)
    witness.add(compared=require_tokens(tokens, stream, what="K=0"), **session.engagement())
    witness.require(accepted=1, rejected=1)
