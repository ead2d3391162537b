"""A decoder that cannot rewind a model says so before it emits anything."""

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Unsupported,
    Witness,
    case,
    require_stream,
    require_tokens,
)
from mtp_conformance.grid import MODELS, spread

LENGTH = 12


@case(
    "rewind.refusal.or-right",
    clause="refusal-of-unrewindable-caches",
    needs=("stream",),
    oracle="K=0 of the same runtime; where drafting is refused, K=0 once more",
    witness="a refusal, or rejects",
    faults=("R2", "R15"),
    since="0.1.0",
    cells=spread(models=("attn", *MODELS[1:3], "gdn-next+mlx-lm", "flash-next"), depths=(2,)),
)
def test_refusal(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Drafting emits K=0's tokens or is refused by an error, after which K=0 goes on as before."""
    oracles.need(Capability.STREAM)
    group = oracles.group(cell)
    before = group.stream(LENGTH)

    def decode(k: int) -> tuple[int, ...]:
        session = group.open(oracles.options(cell))
        made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=LENGTH)
        witness.add(**made.engagement)
        return made.tokens[:LENGTH]

    try:
        tokens = decode(cell.k or 0)
    except Unsupported:
        again = require_tokens(decode(0), before, what="K=0 before drafts were refused")
        witness.add(refused=1, compared=again)
        return
    witness.add(compared=require_stream(oracles, cell, group, tokens, decode))
    witness.require(drafted=1, rejected=1)
