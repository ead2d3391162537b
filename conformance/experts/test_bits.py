"""Experts on disk compute what experts in memory compute."""

from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, as_counts, case, require_equal
from mtp_conformance.grid import EXPERT_MODELS, spread, with_trained
from mtp_conformance.oracles import ExpertSizes
from mtp_conformance.recording import alone, require_recorded

DEPTHS = (1, 3, 8)
OTHERS = ("gdn-next", "gdn-next+mlx-lm")


def budgets(sizes: ExpertSizes, profile: str) -> Sequence[int]:
    """Numbers of slots: one, three quarters of what there is, and all; by profile every number."""
    if profile in ("full", "nightly"):
        return range(1, sizes.count + 1)
    return (1, sizes.count * 3 // 4, sizes.count)


def cells(profile: str) -> Sequence[Cell]:
    """Models x K, each K with another strategy; by default each model with one of them."""
    zoo = spread(models=EXPERT_MODELS, depths=DEPTHS, only_in_full=OTHERS)
    every = with_trained(zoo, depths=(3,), models=("flash-next-bytes",))(profile)
    return every[:: len(DEPTHS) + 1] if profile in ("default", "gate") else every


@case(
    "experts.offload.every-budget",
    clause="expert-offload",
    needs=("experts", "state", "drafts"),
    oracle="the same rounds with all experts in memory",
    witness="experts read after the prompt, accepts and rejects",
    faults=("N1",),
    since="0.1.0",
    cells=cells,
)
def test_every_budget(oracles: Oracles, cell: Cell, witness: Witness, profile: str) -> None:
    """Tokens, logits and states are those of experts in memory, from one slot up."""
    oracles.need(Capability.EXPERTS, Capability.STATE, Capability.DRAFTS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    rounds = alone(group, options, ((k, k // 2), (k, k), (0, 0)))
    sizes = oracles.expert_sizes(group)
    for slots in budgets(sizes, profile):
        session = group.open(
            replace(
                options,
                expert_budget=slots * sizes.nbytes,
                head_expert_budget=min(slots, sizes.head_count) * sizes.head_nbytes,
            )
        )
        session.prefill(group.prompt)
        what = f"experts in memory, against {slots} of {sizes.count} in slots"
        compared = require_equal(session.state(), group.plain_state(0), what=what)
        require_recorded(session, rounds, witness, what=what)
        (reads,) = as_counts(session.round(()).counters, "expert_reads")
        witness.add(compared=compared, reads=reads)
    witness.require(rejected=1, accepted=1, reads=1)
