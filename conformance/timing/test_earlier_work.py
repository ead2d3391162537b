"""Work that was begun before a timer."""

import time

import mlx.core as mx

from conformance.timing.test_slow_rewind import LEAST, cost, steps
from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.grid import spread
from mtp_conformance.slowing import slowed


@case(
    "timing.start.earlier-work",
    clause="timers",
    needs=("timing", "drafts"),
    oracle="a clock outside, and how long the earlier work takes by itself",
    witness="rounds that had to wait for earlier work",
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
    drafts, session = group.drafts(1, k, 1), group.open(options)
    before_all, taken = cost(), dict[str, tuple[float, float]]()
    for what, call in (
        ("a prompt", lambda: session.prefill(group.prompt)),
        ("a round", lambda: session.round(drafts)),
    ):
        before = sum(session.timings().values())
        (work,) = slowed([mx.zeros(1)], steps())
        start = time.perf_counter()
        mx.async_eval(work)
        call()
        wall = time.perf_counter() - start
        taken[what] = wall, sum(session.timings().values()) - before
    least = LEAST * min(before_all, cost())
    for what, (wall, spent) in taken.items():
        witness.add(drafted=k, accepted=1, rejected=k - 1, compared=1, waited=int(wall >= least))
        assert spent <= wall - least, (
            f"{what} took {wall:.3f} s, at least {least:.3f} s of it for work begun before; "
            f"its phases were charged with {spent:.3f} s"
        )
    witness.require(waited=2, rejected=1)
