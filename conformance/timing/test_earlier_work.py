"""Work that was begun before a timer."""

import time
from functools import partial

import mlx.core as mx

from conformance.timing.work import SHARE, best
from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.grid import spread
from mtp_conformance.slowing import slowed


@case(
    "timing.start.earlier-work",
    clause="timers",
    needs=("timing", "drafts"),
    oracle="a clock outside; the earlier work takes longer than the call by itself",
    witness="a round with a reject",
    faults=("C3",),
    since="0.1.0",
    cells=spread(models=("attn", "gdn+mlx-lm"), strategies=("tape", "replay"), depths=(2,)),
)
def test_earlier_work(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """What was submitted before a prompt or a round is in none of its phases."""
    oracles.need(Capability.TIMING, Capability.DRAFTS)
    if not oracles.runtime.in_process:
        raise Unsupported("work of this process does not keep another one busy")
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    drafts = group.drafts(1, k, 1)

    def share(operation: str, work_steps: int) -> float:
        """Part of a call's time, with earlier work in it, that no phase is charged with."""
        session = group.prefilled(options) if operation == "round" else group.open(options)
        before, work = sum(session.timings().values()), slowed([mx.zeros(1)], work_steps)
        start = time.perf_counter()
        mx.async_eval(work)
        session.unseen(operation, drafts if operation == "round" else group.prompt)
        wall = time.perf_counter() - start
        witness.add(drafted=k, accepted=1, rejected=k - 1, compared=1)
        return 1 - (sum(session.timings().values()) - before) / wall

    for operation in ("prefill", "round"):
        left = best(partial(share, operation), SHARE)
        assert left >= SHARE, (
            f"most of the time of a {operation} went to work begun before; its phases were "
            f"charged with {1 - left:.0%} of it"
        )
    witness.require(rejected=1)
