"""Tokens under a policy."""

from collections.abc import Sequence

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 48


def _cells(profile: str) -> Sequence[Cell]:
    cells = spread(models=("gdn-agree", "flash-next", "qsa", "gdn+mlx-lm"), depths=(3,))(profile)
    chosen = [("rate", "streak")[i % 2] for i in range(len(cells))]
    return [
        Cell(c.model, c.strategy, c.k, None, c.dtype, c.prompt_length, (("policy", policy),))
        for c, policy in zip(cells, chosen, strict=True)
    ]


@case(
    "policy.stream.equals-plain",
    clause="greedy-stream",
    needs=("stream", "guess", "policy"),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects",
    since="0.1.0",
    cells=_cells,
)
def test_stream(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """However deep a policy drafts, the tokens are those of K=0.

    Drafts are right, then wrong long enough for a pause, then right again.
    """
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.POLICY)
    options, group, k = oracles.with_policy(cell), oracles.group(cell), cell.k or 0
    with oracles.bits_against_steps(group, k):
        expected = group.stream(LENGTH + k)
        wrong = range(6, 24)
        guess = [(t + 1) % 256 if i in wrong else t for i, t in enumerate(expected)]
        made = group.open(options).generate(
            group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess
        )
        compared = require_tokens(made.tokens, expected[:LENGTH], what="K=0")
        witness.add(compared=compared, **made.engagement)
    witness.require(accepted=1, rejected=1)
