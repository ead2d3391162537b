"""Equal probabilities at a cut."""

from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens

LENGTH = 10
CUTS: dict[str, dict[str, float]] = {
    "top-k": {"top_k": 1},
    "top-p": {"top_p": 1e-6},
    "min-p": {"min_p": 1.0, "top_k": 1},
}


def _cells(profile: str) -> Sequence[Cell]:
    cuts = list(CUTS)[:1] if profile == "smoke" else CUTS
    return [Cell("attn-ties", "tape", 2, None, "float32", 6, (("cut", cut),)) for cut in cuts]


@case(
    "sample.cuts.lowest-of-equals",
    clause="exact-ties",
    needs=("stream", "guess", "sampling"),
    oracle="greedy decoding of the same runtime with K=0",
    witness="drafted twins, all rejected",
    since="0.1.0",
    cells=_cells,
)
def test_cut_ties(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A cut that leaves one of two equally likely tokens leaves the lower one.

    So at any temperature and with any seed the tokens are those of greedy decoding.
    """
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.SAMPLING)
    group, k = oracles.group(cell), cell.k or 0
    stream = group.stream(LENGTH)
    twins = [token + 128 if token < 128 else token for token in stream]
    for seed in range(3):
        cut = CUTS[str(cell.params["cut"])]
        options = replace(oracles.options(cell), temperature=1.5, seed=seed, **cut)
        made = group.open(options).generate(
            group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=twins
        )
        witness.add(
            compared=require_tokens(made.tokens, stream, what="greedy decoding"),
            twins=sum(token < 128 for token in stream[1:]),
            **made.engagement,
        )
    witness.require(twins=1, rejected=1)
