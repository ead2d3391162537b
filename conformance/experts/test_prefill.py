"""A prompt goes through the experts layer by layer."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, as_counts, case, require_equal
from mtp_conformance.grid import EXPERT_MODELS, spread

STEPS = (1, 3, 2048)
"""Prompt tokens a pass."""


@case(
    "experts.prefill.reads-once",
    clause="expert-prefill",
    level="should",
    needs=("experts", "state"),
    oracle="the prompt with experts in memory; the number of experts there are",
    witness="experts read for target and head",
    since="0.1.0",
    cells=spread(
        models=EXPERT_MODELS,
        strategies=("tape",),
        only_in_full=("gdn-next", "gdn-next+mlx-lm"),
    ),
)
def test_reads_once(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """However small its chunks, a prompt reads no expert twice, and fills the same caches.

    The head's too, from every pair of the prompt, and from slots for one expert.
    """
    oracles.need(Capability.EXPERTS, Capability.STATE)
    group, options = oracles.group(cell), oracles.options(cell)
    sizes = oracles.expert_sizes(group)
    budget = {"expert_budget": sizes.nbytes, "head_expert_budget": sizes.head_nbytes}
    for step in STEPS:
        session = group.open(replace(options, prefill_step_size=step, **budget))
        outcome = session.prefill(group.prompt)
        reads, head = as_counts(outcome.counters, "expert_reads", "head_expert_reads")
        what = f"the prompt with experts in memory, against chunks of {step}"
        with oracles.bits_against_prefill(group, 0):  # a chunk of another width may round otherwise
            compared = require_equal(session.state(), group.plain_state(0), what=what)
        assert reads <= sizes.count, f"chunks of {step}: {reads} reads of {sizes.count} experts"
        assert head <= sizes.head_count, f"chunks of {step}: {head} reads of the head's experts"
        witness.add(compared=compared, reads=reads, head_reads=head)
    witness.require(reads=1, head_reads=int(len(group.prompt) > 1))
