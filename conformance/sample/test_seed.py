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
    witness="another seed gives other tokens",
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

    first, other = decode(1), decode(2)
    witness.add(other_tokens=int(first != other))
    witness.add(compared=require_tokens(decode(1), first, what="the same request before"))
    greedy = group.stream(LENGTH)
    for seed in (1, 2):
        cold = decode(seed, temperature=0.0)
        witness.add(compared=require_tokens(cold, greedy, what="greedy decoding without a seed"))
    witness.require(other_tokens=1)
