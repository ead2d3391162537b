"""Drafts are counted as they were emitted."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case
from mtp_conformance.grid import spread
from mtp_conformance.protocol import Generated

BEFORE = (1, 2)
"""Tokens emitted before the first drafts: the prefill's, and one step's where that comes first."""

AHEAD = 2
"""Passes that a decoder may have made, or have begun, when it hands out a token."""


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
        stream, before = group.stream(4 * k + 6), list(BEFORE)
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
            tokens, likely = len(made.tokens), before[0]
            before = [n for n in before if _as_emitted(made, k, n)]
            accepted, drafted = _due(tokens, k, likely)
            assert before, (
                f"{tokens} tokens emitted with K={k} and right drafts: counts "
                f"{made.accepted} accepted of {made.drafted}; {accepted} of {drafted} were"
            )
            inside = (tokens - before[0]) % (k + 1)
            witness.add(compared=2, inside=int(inside > 0), **made.engagement)
    witness.require(accepted=k, inside=1)


def _due(tokens: int, k: int, before: int) -> tuple[int, int]:
    """Accepted and drafted tokens of so many emitted ones, all drafts being right."""
    blocks, rest = divmod(max(0, tokens - before), k + 1)
    return blocks * k + min(rest, k), (blocks + bool(rest)) * k


def _as_emitted(made: Generated, k: int, before: int) -> bool:
    """Whether the counts are those of a decoder that drafts after so many tokens."""
    accepted, drafted = _due(len(made.tokens), k, before)
    return made.accepted == accepted and drafted <= made.drafted <= drafted + AHEAD * k
