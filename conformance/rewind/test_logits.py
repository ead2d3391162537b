"""One round, every depth and accept count: what the model says next."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, logits_of, require_equal
from mtp_conformance.grid import one_round


@case(
    "rewind.logits.one-round",
    clause="rewound-logits",
    needs=("logits", "drafts"),
    oracle="K=0 of the same runtime",
    witness="logits compared, and a reject unless all drafts are right",
    faults=("R1", "R13", "R14"),
    since="0.1.0",
    cells=one_round,
)
def test_next_logits(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After a rewind the next token's logits are those of a run that never advanced further."""
    oracles.need(Capability.LOGITS, Capability.DRAFTS)
    group = oracles.group(cell)
    k, accepted = cell.k or 0, cell.accepted or 0
    session, outcome = group.rewound(oracles.options(cell).strategy, k, accepted)
    following = session.fork().round(())
    with oracles.bits_against_steps(group, k):
        compared = require_equal(
            logits_of(following.logits),
            {"logits": group.plain_logits(accepted + 2)},
            what="the K=0 run",
            round=2,
        )
    witness.add(
        drafted=k, accepted=outcome.accepted, rejected=k - outcome.accepted, compared=compared
    )
    witness.require(drafted=k, rejected=int(accepted < k))
