"""A drafted end of text that the target does not share."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 10


@case(
    "emit.stop.wrong-draft",
    clause="emitted-tokens",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime",
    witness="accepts, and rejected drafts of the stop",
    faults=("T2",),
    since="0.1.0",
    cells=spread(models=("attn", "gdn+mlx-lm", "flash-next"), depths=(1, 3)),
)
def test_wrong_stop(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A stop that is drafted and rejected ends nothing."""
    oracles.need(Capability.STREAM, Capability.GUESS)
    group = oracles.group(cell)
    k = cell.k or 0
    with oracles.bits_against_steps(group, k):
        stream = group.stream(LENGTH)
        stop = next(token for token in range(256) if token not in stream)
        made = group.open(oracles.options(cell)).generate(
            group.prompt,
            num_draft_tokens=k,
            max_tokens=LENGTH,
            eos_token_ids=[stop],
            guess=[stop if i % 3 == 2 else token for i, token in enumerate(stream)],
        )
        witness.add(compared=require_tokens(made.tokens, stream, what="K=0"), **made.engagement)
    witness.require(accepted=1, rejected=1)
