"""Log-probabilities of tokens that come of blocks."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 9
NEVER = "\x00 never said \x00"
"""A stop string, without which no log-probabilities are asked for."""


@case(
    "emit.logprobs.as-without-drafts",
    clause="stop-text",
    needs=("stream", "guess", "text"),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects",
    since="0.1.0",
    cells=spread(models=("window",), depths=(3,)),
)
def test_logprobs(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Every token comes with the log-probability that it has without drafts."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.TEXT)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    with oracles.bits_against_steps(group, k):
        plain, made = (
            group.open(options).generate(
                group.prompt,
                num_draft_tokens=depth,
                max_tokens=LENGTH,
                guess=[(t + 1) % 256 if i % 4 == 2 else t for i, t in enumerate(stream)] or None,
                stop_strings=[NEVER],
            )
            for depth, stream in ((0, []), (k, group.stream(LENGTH)))
        )
        compared = require_tokens(made.tokens, plain.tokens, what="K=0")
        assert len(made.logprobs) == len(made.tokens), "not one log-probability a token"
        pairs = enumerate(zip(made.logprobs, plain.logprobs, strict=True))
        wrong = next((at for at, (mine, due) in pairs if mine != due), None)
        assert wrong is None, (
            f"token {wrong} comes with log-probability {made.logprobs[wrong or 0]}, "
            f"{plain.logprobs[wrong or 0]} without drafts"
        )
        witness.add(compared=compared + len(made.logprobs), **made.engagement)
    witness.require(accepted=1, rejected=1)
