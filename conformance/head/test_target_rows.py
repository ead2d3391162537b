"""Head rows made from the target's verified residuals."""

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_emitted,
    require_equal,
)
from mtp_conformance.grid import spread

SCRIPT = ((3, 1), (2, 2), (0, 0), (4, 0), (1, 1))


@case(
    "head.rows.from-target",
    clause="head-alignment",
    needs=("state", "head-state", "drafts"),
    oracle="one prefill over all tokens",
    witness="accepts and rejects",
    since="0.1.0",
    cells=spread(),
)
def test_rows_from_target(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """With rows made from target residuals the head's cache is that of a fresh prefill."""
    oracles.need(Capability.STATE, Capability.HEAD_STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    options = oracles.options(cell, head_rows="target")
    session = group.prefilled(options)
    with oracles.bits_against_prefill(group, max(k for k, _ in SCRIPT), options.strategy):
        emitted = 1
        for number, (k, accepted) in enumerate(SCRIPT, start=1):
            outcome = session.round(group.drafts(emitted, k, accepted))
            due = group.stream(emitted + accepted + 1)[emitted:]
            require_emitted(outcome, due, round=number)
            emitted += accepted + 1
            compared = require_equal(
                session.state(),
                group.direct_state(emitted - 1),
                what="one prefill over all tokens",
                round=number,
            )
            witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=compared)
    witness.require(accepted=1, rejected=1)
