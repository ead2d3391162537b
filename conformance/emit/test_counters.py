"""Drafts are counted as they were emitted."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case
from mtp_conformance.grid import spread


@case(
    "emit.counters.as-emitted",
    clause="counters",
    needs=("stream", "guess"),
    oracle="arithmetic: with right drafts a block of K+1 tokens has K of them",
    witness="accepts, and stops inside a block",
    faults=("C4", "T1"),
    since="0.1.0",
    cells=spread(models=("attn", "gdn+mlx-lm"), depths=(3,)),
)
def test_counters(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Drafts behind a stop do not count as accepted, nor does the token that nobody drafted."""
    oracles.need(Capability.STREAM, Capability.GUESS)
    group = oracles.group(cell)
    k = cell.k or 0
    with oracles.bits_against_steps(group, k):
        stream = group.stream(4 * k + 6)
        for end in range(1, 2 * k + 4):
            if stream[end - 1] in stream[: end - 1]:
                continue
            made = group.open(oracles.options(cell)).generate(
                group.prompt,
                num_draft_tokens=k,
                max_tokens=len(stream),
                eos_token_ids=[stream[end - 1]],
                guess=stream,
            )
            blocks, rest = divmod(len(made.tokens) - 1, k + 1)
            accepted, drafted = blocks * k + min(rest, k), (blocks + bool(rest)) * k
            # A stop that nobody drafted may be seen once the pass from it has verified drafts.
            verified = {drafted, (blocks + 1) * k}
            assert made.accepted == accepted and made.drafted in verified, (
                f"{len(made.tokens)} tokens emitted with K={k} and right drafts: counts "
                f"{made.accepted} accepted of {made.drafted}; {accepted} of {drafted} were"
            )
            witness.add(compared=2, inside=int(0 < rest <= k), **made.engagement)
    witness.require(accepted=k, inside=1)
