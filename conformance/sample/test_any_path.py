"""A sampled token is the same however decoding came to its place."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 6


@case(
    "sample.seed.any-path",
    clause="sampled-stream",
    needs=("stream", "sampling"),
    oracle="one request that decodes all of it",
    witness="tokens that greedy decoding would not emit",
    faults=("S7",),
    since="0.1.0",
    cells=spread(models=("attn", "gdn+mlx-lm"), depths=(0,)),
)
def test_any_path(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """The first token after a prompt is drawn as any other: by seed and position alone.

    A prompt that already ends with what was emitted goes on with the same tokens.
    """
    oracles.need(Capability.STREAM, Capability.SAMPLING)
    group = oracles.group(cell)
    options = replace(oracles.options(cell), temperature=1.0, seed=5)

    def decode(prompt: list[int], length: int) -> list[int]:
        made = group.open(options).generate(prompt, num_draft_tokens=0, max_tokens=length)
        return list(made.tokens[:length])

    with oracles.bits_against_steps(group, LENGTH):
        whole = decode(group.prompt, LENGTH)
        witness.add(sampled=int(whole != group.stream(LENGTH)))
        for done in range(1, LENGTH):
            rest = decode([*group.prompt, *whole[:done]], LENGTH - done)
            what = f"the request that began {done} tokens earlier"
            witness.add(compared=require_tokens(rest, whole[done:], what=what))
    witness.require(sampled=1)
