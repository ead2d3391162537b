"""A rewind leaves the disk alone."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, as_counts, case
from mtp_conformance.grid import EXPERT_MODELS, spread


@case(
    "experts.rewind.reads-none",
    clause="expert-offload",
    needs=("experts", "drafts"),
    oracle="counters of reads, with one slot, so that any use of an expert is a read",
    witness="rejects, and experts read by the verify pass",
    since="0.1.0",
    cells=spread(
        models=EXPERT_MODELS,
        strategies=("tape", "rerun", "snapshot"),
        depths=(3,),
        only_in_full=("gdn-next", "gdn-next+mlx-lm"),
    ),
)
def test_reads_none(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Whatever was rejected, no expert of target or head is read to undo it."""
    oracles.need(Capability.EXPERTS, Capability.DRAFTS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    sizes = oracles.expert_sizes(group)
    budget = {"expert_budget": sizes.nbytes, "head_expert_budget": sizes.head_nbytes}
    session, emitted = group.open(replace(options, **budget)), 1
    session.prefill(group.prompt)
    for accepted in range(k):
        outcome = session.round(group.drafts(emitted, k, accepted))
        emitted += accepted + 1
        names = ("expert_reads", "expert_reads_in_rewind", "head_expert_reads_in_rewind")
        reads, rewind, head = as_counts(outcome.counters, *names)
        assert rewind == 0, f"a rewind to {accepted} accepted drafts read {rewind} experts"
        assert head == 0, f"a rewind to {accepted} accepted drafts read {head} of the head's"
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=2, reads=reads)
    witness.require(rejected=k, reads=k)
