"""Rounds of the head's own drafts: the state afterwards."""

from mtp_conformance import (
    Capability,
    Cell,
    Group,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.grid import AGREEING_MODELS, spread, with_trained

LENGTHS = (12, 64)
"""Tokens; the second where every draft of the first stood, or none, then of other prompts."""


@case(
    "rewind.state.own-drafts",
    clause="rewound-state",
    needs=("stream", "state"),
    oracle="one prefill over the emitted tokens",
    witness="accepts and rejects of the head's own drafts, from models whose head is often right",
    faults=("R12",),
    since="0.1.0",
    cells=with_trained(spread(models=AGREEING_MODELS, depths=(1, 3)), depths=(1, 3)),
)
def test_own_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After drafting by itself a decoder's caches are those of a prefill over what it emitted."""
    oracles.need(Capability.STREAM, Capability.STATE)
    oracles.held_after_stop(1)
    for group, length in oracles.until_seen(cell, witness, LENGTHS):
        witness.add(compared=_compare(oracles, cell, witness, group, length))
    witness.require(accepted=1, rejected=1)


def _compare(oracles: Oracles, cell: Cell, witness: Witness, group: Group, length: int) -> int:
    """Hold caches and tokens of so many emitted ones; returns what was compared."""
    held = oracles.held_after_stop(length)
    k = cell.k or 0
    options, view = oracles.prefill_like(cell, stopped=True)
    with oracles.bits_against_prefill(group, k):
        session = group.open(options)
        made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=length)
        witness.add(**made.engagement)
        if len(made.tokens) != length:  # else caches and tokens are at one place
            require_tokens(made.tokens, group.stream(length), what="K=0")
        compared = require_equal(
            view(session.state()),
            view(group.direct_state(held)),
            what=f"one prefill over what {length} emitted tokens leave in the caches",
        )
        return compared + require_tokens(made.tokens, group.stream(length), what="K=0")
