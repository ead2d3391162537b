"""Experts stay out of the rewind."""

from mtp_conformance import Capability, Cell, Oracles, Witness, as_counts, case
from mtp_conformance.grid import EXPERT_MODELS, spread


@case(
    "rewind.experts.not-called",
    clause="rewind-cost",
    needs=("counters", "drafts"),
    oracle="call counters of the routed experts",
    witness="rejects, and experts called by the verify pass",
    since="0.1.0",
    cells=spread(models=EXPERT_MODELS, strategies=("tape", "rerun"), depths=(1, 3, 8)),
)
def test_no_expert_is_called(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A tape or rerun rewind calls no routed expert, whatever was rejected."""
    oracles.need(Capability.COUNTERS, Capability.DRAFTS)
    group = oracles.group(cell)
    k = cell.k or 0
    for accepted in range(k):
        session = group.prefilled(oracles.options(cell))
        outcome = session.round(group.drafts(1, k, accepted))
        verify, rewind, head = as_counts(
            outcome.counters,
            "expert_calls_in_verify",
            "expert_calls_in_rewind",
            "head_expert_calls_in_rewind",
        )
        witness.add(
            drafted=k,
            accepted=outcome.accepted,
            rejected=k - outcome.accepted,
            compared=2,
            expert_calls_in_verify=verify,
        )
        assert rewind == 0, "the target's experts ran in a rewind"
        assert head == 0, "the head's experts ran in a rewind"
    witness.require(rejected=1, expert_calls_in_verify=k)
