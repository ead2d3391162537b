"""One round, every depth and accept count: what the model says next."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, logits_of, require_equal
from mtp_conformance.grid import one_round_in_turn


@case(
    "rewind.logits.one-round",
    clause="rewound-logits",
    needs=("logits", "drafts"),
    oracle="K=0 of the same runtime",
    witness="logits compared, and a reject unless all drafts are right",
    faults=("R1", "R13", "R14"),
    since="0.1.0",
    cells=one_round_in_turn,
)
def test_next_logits(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After a rewind the next token's logits are those of a run that never advanced further."""
    oracles.need(Capability.LOGITS, Capability.DRAFTS)
    group = oracles.group(cell)
    k, accepted = cell.k or 0, cell.accepted or 0
    options = oracles.options(cell)
    session, outcome = group.rewound(options.strategy, k, accepted)
    following = session.fork().round(())
    expected = {"logits": group.plain_logits(accepted + 2)}
    try:
        compared = require_equal(logits_of(following.logits), expected, what="the K=0 run", round=2)
    except AssertionError as error:
        if oracles.condemns(group.key, [k], error, options.strategy):
            raise
        twins = [group.prefilled(options) for _ in range(2)]
        for tail, twin in enumerate(twins):
            twin.round(group.drafts(1, k, accepted, tail=tail))
        compared = require_equal(
            *(logits_of(twin.round(()).logits) for twin in twins),
            what="a run of the same shape with other rejected drafts",
            round=2,
        )
    witness.add(
        drafted=k, accepted=outcome.accepted, rejected=k - outcome.accepted, compared=compared
    )
    witness.require(drafted=k, rejected=int(accepted < k))
