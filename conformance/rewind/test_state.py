"""One round, every depth and accept count: the state afterwards."""

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_emitted,
    require_equal,
    target_arrays,
)
from mtp_conformance.grid import one_round


@case(
    "rewind.state.one-round",
    clause="rewound-state",
    needs=("state", "drafts", "fork"),
    oracle=(
        "a round that was given the accepted drafts alone; K=0; one forward pass over all tokens"
    ),
    witness="arrays compared, and a reject unless all drafts are right",
    faults=("R1", "R3", "R13", "R16"),
    since="0.1.0",
    cells=one_round,
)
def test_one_round(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After a round every array of every cache is what it is had no rejected draft existed."""
    oracles.need(Capability.STATE, Capability.DRAFTS, Capability.FORK)
    group = oracles.group(cell)
    k, accepted = cell.k or 0, cell.accepted or 0
    session, outcome = group.rewound(cell.strategy or "tape", k, accepted)
    require_emitted(outcome, group.stream(accepted + 2)[1:], round=1)
    state = session.state()
    twin = group.never_rejected_state([group.drafts(1, accepted, accepted)])
    compared = require_equal(state, twin, what="the never-rejected run", round=1)
    rewound = target_arrays(state)
    plain = target_arrays(group.plain_state(accepted + 1))
    compared += require_equal(rewound, plain, what="the K=0 run", round=1)
    direct = target_arrays(group.direct_state(accepted + 1))
    compared += require_equal(rewound, direct, what="one direct forward pass", round=1)
    witness.add(
        drafted=k, accepted=outcome.accepted, rejected=k - outcome.accepted, compared=compared
    )
    witness.require(drafted=k, rejected=int(accepted < k))
