"""Rounds of the head's own drafts: the state afterwards."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal, require_tokens
from mtp_conformance.grid import AGREEING_MODELS, spread, with_trained

LENGTH = 12


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
    held = oracles.held_after_stop(LENGTH)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell, stopped=True)
    with oracles.bits_against_steps(group, cell.k or 0):
        session = group.open(options)
        made = session.generate(group.prompt, num_draft_tokens=cell.k or 0, max_tokens=LENGTH)
        witness.add(**made.engagement)
        if len(made.tokens) != LENGTH:  # else caches and tokens are at one place
            require_tokens(made.tokens, group.stream(LENGTH), what="K=0")
        compared = require_equal(
            view(session.state()),
            view(group.direct_state(held)),
            what=f"one prefill over what {LENGTH} emitted tokens leave in the caches",
        )
        compared += require_tokens(made.tokens, group.stream(LENGTH), what="K=0")
    witness.add(compared=compared)
    witness.require(accepted=1, rejected=1)
