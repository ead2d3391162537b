"""What is counted as read is what was read."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, as_counts, case
from mtp_conformance.grid import EXPERT_MODELS, spread, with_trained

SCRIPT = ((3, 1), (2, 0), (0, 0), (3, 3))
"""Rounds as (K, accepted)."""
COUNTS = ("requests", "hits", "reads", "bytes_read")


@case(
    "experts.counters.exact",
    clause="expert-offload",
    needs=("experts", "drafts"),
    oracle="the routing of the specification, and arithmetic",
    witness="experts read, and with room for all of them found in memory",
    since="0.1.0",
    cells=with_trained(
        spread(
            models=EXPERT_MODELS,
            strategies=("tape", "rerun", "snapshot"),
            only_in_full=("gdn-next", "gdn-moe+mlx-lm", "gdn-next+mlx-lm"),
        ),
        models=("flash-next-bytes",),
        strategies=("tape", "rerun", "snapshot"),
    ),
)
def test_counts_are_exact(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A pass asks for the experts its rows chose, reads those it does not have, whole ones.

    With one slot that is every one of them; with room for all none is read twice. Where a run is
    row-exact, rows may ask one after the other, and a row find what the one before it read.
    """
    oracles.need(Capability.EXPERTS, Capability.DRAFTS)
    group, options = oracles.group(cell), oracles.options(cell)
    sizes, apart = oracles.expert_sizes(group), oracles.runtime.row_exact
    for slots in (1, sizes.count):
        budget = {"expert_budget": slots * sizes.nbytes, "head_expert_budget": sizes.head_nbytes}
        session = group.open(replace(options, **budget))
        session.prefill(group.prompt)
        emitted, known = 1, set[tuple[int, int]]()
        for number, (k, accepted) in enumerate(SCRIPT, start=1):
            drafts = group.drafts(emitted, k, accepted)
            rows = oracles.routing(group, [*group.prompt, *group.stream(emitted), *drafts])
            outcome = session.round(drafts)
            requests, hits, reads, nbytes = as_counts(
                outcome.counters, *(f"expert_{name}" for name in COUNTS)
            )
            head = as_counts(outcome.counters, *(f"head_expert_{name}" for name in COUNTS))
            chosen = [(n, e) for n, layer in enumerate(rows) for r in layer[-k - 1 :] for e in r]
            asked = set(chosen)
            where = f"round {number} with {slots} of {sizes.count} slots: "
            said = f"{where}counts {requests} requests, {hits} hits, {reads} reads"
            most = len(chosen) if apart else len(asked)
            chose = f"its rows chose {len(asked)} experts, {len(chosen)} one by one"
            assert len(asked) <= requests <= most, f"{said}; {chose}"
            assert hits + reads == requests, f"{said}; what is no hit is read once"
            if slots == 1:
                assert apart or not hits, f"{said}; with one slot no layer finds its experts"
            else:
                new = len(asked - known)
                assert reads <= new, f"{said}; only {new} of them were never read before"
            assert nbytes == reads * sizes.nbytes, f"{where}{nbytes} bytes for {reads} experts"
            assert head[1] + head[2] == head[0], f"{where}the head's hits and reads are {head}"
            assert head[3] == head[2] * sizes.head_nbytes, f"{where}the head's bytes are {head}"
            known |= asked
            emitted += accepted + 1
            witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=6)
            witness.add(reads=reads, hits=hits)
    witness.require(rejected=1, reads=1, hits=1)
