"""Exact ties: the lowest index, whoever looks."""

from collections.abc import Sequence

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LENGTH = 12
TWIN = 128
"""In the model `attn-ties` token t below this and token t + TWIN have equal logits everywhere."""
_SPREAD = spread(models=("attn-ties",), depths=(2, 4))


def _also_for_peers(profile: str) -> Sequence[Cell]:
    """No family of other runtimes has the model on its list; those that open any folder do."""
    return _SPREAD("default" if profile in ("peers", "smoke") else profile)


def _not_for_peers(profile: str) -> Sequence[Cell]:
    return [] if profile == "peers" else _SPREAD(profile)[:1]


@case(
    "stream.ties.own-drafts",
    clause="exact-ties",
    needs=("stream",),
    oracle="the rule: no draft that has a lower twin",
    witness="drafts that are shown",
    faults=("T13",),
    since="0.1.0",
    cells=_not_for_peers,
)
def test_own_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Of two equal maxima drafting takes the first, as plain decoding does."""
    oracles.need(Capability.STREAM)
    group, k = oracles.group(cell), cell.k or 0
    made = group.open(oracles.options(cell)).generate(
        group.prompt, num_draft_tokens=k, max_tokens=LENGTH
    )
    drafts = [draft for drafts in made.drafts for draft in drafts]
    higher = [draft for draft in drafts if TWIN <= draft < 2 * TWIN]
    assert not higher, f"{higher[0]} was drafted, which ties with {higher[0] - TWIN}"
    witness.add(compared=len(drafts), twins=sum(draft < TWIN for draft in drafts))
    witness.require(twins=1)


@case(
    "stream.ties.lowest-index",
    clause="exact-ties",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime, and the rule: no token that has a lower twin",
    witness="drafted twins, all rejected",
    faults=("T13",),
    since="0.1.0",
    cells=_also_for_peers,
)
def test_ties(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Of two equal maxima plain decoding takes the first, and verify rejects the second."""
    oracles.need(Capability.STREAM, Capability.GUESS)
    group, k = oracles.group(cell), cell.k or 0
    stream = group.stream(LENGTH)
    higher = [token for token in stream if TWIN <= token < 2 * TWIN]
    assert not higher, f"K=0 emitted {higher[0]}, which ties with {higher[0] - TWIN}"
    guess = [token + TWIN if token < TWIN else token for token in stream]
    made = group.open(oracles.options(cell)).generate(
        group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess
    )
    twins = sum(token < TWIN for token in stream[1:])
    witness.add(compared=require_tokens(made.tokens, stream, what="K=0"), **made.engagement)
    witness.add(twins=twins)
    witness.require(twins=1, rejected=1)
