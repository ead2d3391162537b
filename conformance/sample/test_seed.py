"""A seed settles the tokens of a request, and nothing else does."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 10


@case(
    "sample.seed.early-or-late",
    clause="sampled-stream",
    needs=("stream", "sampling"),
    oracle="the same request, earlier in the process",
    witness="tokens of more than one seed",
    faults=("S6",),
    since="0.1.0",
    cells=spread(models=("gdn", "flash-next"), depths=(0,)),
)
def test_early_or_late(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A seed gives the same tokens early and late in the process, beside other requests."""
    oracles.need(Capability.STREAM, Capability.SAMPLING)
    group, options = oracles.group(cell), oracles.options(cell)

    def decode(seed: int, temperature: float = 1.0) -> list[int]:
        session = group.open(replace(options, temperature=temperature, seed=seed))
        made = session.generate(group.prompt, num_draft_tokens=0, max_tokens=LENGTH)
        return list(made.tokens[:LENGTH])

    first, others = decode(1), [decode(seed) for seed in (2, 3, 4)]
    assert any(other != first for other in others), (
        f"four seeds gave the same {LENGTH} tokens at temperature 1"
    )
    witness.add(seeds=1 + len(others))
    witness.add(compared=require_tokens(decode(1), first, what="the same request before"))
    greedy = group.stream(LENGTH)
    for seed in (1, 2):
        cold = decode(seed, temperature=0.0)
        witness.add(compared=require_tokens(cold, greedy, what="greedy decoding without a seed"))
    witness.require(seeds=2)
