"""Temperature, cuts, a token mask and a repetition penalty, all at once."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 10
SETTINGS = {
    **{"temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 8},
    **{"repetition_penalty": 0.4, "repetition_context_size": 20},
}
"""Ordinary cuts; a penalty below 1 favours recent tokens, which random models repeat too seldom for
one above 1 to show."""
WHEEL = (
    tuple(range(0, 256, 2)),
    tuple(range(1, 256, 2)),
    tuple(range(0, 256, 3)),
    (97, 98, 99, 100),
)
"""Allowed tokens, one list after the other."""
OTHERS = ("ple", "flash-next", "gdn+mlx-lm")


@case(
    "sample.stream.steered",
    clause="sampled-stream",
    needs=("stream", "guess", "sampling", "penalty", "mask"),
    oracle="K=0 of the same runtime with the same seed, penalty and mask",
    witness="accepts and rejects; at temperature 0 or without a penalty the tokens would be others",
    faults=("S8", "S10", "S13"),
    since="0.1.0",
    cells=spread(models=("attn", *OTHERS), depths=(4,), not_by_default=OTHERS),
)
def test_steered(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Sampled under a mask and a penalty, with every cut at work, the tokens are those of K=0."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.SAMPLING)
    oracles.need(Capability.PENALTY, Capability.MASK)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), allowed_tokens=WHEEL, **SETTINGS)

    def plain(**others: object) -> list[int]:
        session = group.open(replace(options, **others))
        made = session.generate(group.prompt, num_draft_tokens=0, max_tokens=LENGTH)
        return list(made.tokens[:LENGTH])

    expected = plain()
    for index, token in enumerate(expected):
        assert token in WHEEL[index % len(WHEEL)], f"token {index} is {token}, which is not allowed"
    witness.add(
        sampled=int(plain(temperature=0.0) != expected),
        penalised=int(plain(repetition_penalty=1.0) != expected),
    )
    guess = [(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(expected)]
    with oracles.bits_against_steps(group, k):
        made = group.open(options).generate(
            group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess
        )
        what = "K=0 with the same seed, penalty and mask"
        witness.add(compared=require_tokens(made.tokens[:LENGTH], expected, what=what))
    witness.add(**made.engagement)
    witness.require(accepted=1, rejected=1, sampled=1, penalised=1)
