"""A rewind that takes long."""

import mlx.core as mx

from conformance.timing.work import SHARE, best, seconds
from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.checked import CheckedSession
from mtp_conformance.exactness import require_equal
from mtp_conformance.grid import spread
from mtp_conformance.group import Group

OFFSETS = ("offset", "index_offset")
DONE = 0.625
"""Least part of a round's time, with what it left to be computed, that is the round's own."""


def components(session: CheckedSession) -> list[str]:
    """Every component of a session's caches, `layers.recurrent` and the like."""
    found = {(name.split(".")[0], name.rpartition(".")[2]) for name in session.state()}
    kinds = {(part, name) for part, name in found if name not in (*OFFSETS, "hidden")}
    return sorted(f"{part}.{name}" for part, name in kinds)


def slow_round(
    group: Group, session: CheckedSession, component: str, k: int, work_steps: int
) -> float:
    """A round that accepts one draft of K, and whose rewind leaves a component waiting so long.

    Returns how long it took.
    """
    drafts = group.drafts(1, k, 1)
    session.slow_rewind(component, work_steps)
    return seconds(lambda: session.unseen("round", drafts))


@case(
    "timing.rewind.slow-is-charged",
    clause="timers",
    needs=("timing", "slow-rewind", "state", "drafts"),
    oracle="a clock outside",
    witness="a slow rewind of every component of every cache",
    faults=("C1",),
    since="0.1.0",
    cells=spread(models=("window", "qsa", "gdn+mlx-lm", "flash-next"), depths=(3,)),
)
def test_slow_is_charged(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Whatever state a rewind leaves to be computed, `rewind` is charged for it; bits stay."""
    oracles.need(Capability.TIMING, Capability.SLOW_REWIND, Capability.STATE, Capability.DRAFTS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    plain = group.prefilled(options)
    plain.round(group.drafts(1, k, 1))
    in_process = oracles.runtime.in_process
    for component in components(plain):

        def share(work_steps: int, component: str = component) -> float:
            session = group.prefilled(options)
            before = session.timings().get("rewind", 0.0)
            wall = slow_round(group, session, component, k, work_steps)
            spent = session.timings()["rewind"] - before
            late = seconds(lambda: mx.eval(session.unevaluated_state())) if in_process else 0.0
            what = "a rewind that was not slow"
            compared = require_equal(session.state(), plain.state(), what=what)
            witness.add(drafted=k, accepted=1, rejected=k - 1, compared=compared)
            return spent / (wall + late)

        charged = best(share, SHARE)
        witness.add(slow=1)
        assert charged >= SHARE, (
            f"{component} was long to put back; of the time of the round and of what it left the "
            f"rewind was charged with {charged:.0%}"
        )
    witness.require(rejected=1, slow=len(components(plain)))


@case(
    "timing.totals.after-all-work",
    clause="timers",
    needs=("timing", "slow-rewind", "state", "drafts"),
    oracle="a clock outside",
    witness="slow rewinds",
    faults=("C1", "C3"),
    since="0.1.0",
    cells=spread(models=("gdn", "attn"), depths=(2,)),
)
def test_after_all_work(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """When a round has its totals, nothing that it submitted is still being computed."""
    oracles.need(Capability.TIMING, Capability.SLOW_REWIND, Capability.STATE, Capability.DRAFTS)
    if not oracles.runtime.in_process:
        raise Unsupported("what a process of its own still computes cannot be seen from here")
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    component = components(group.prefilled(options))[-1]

    def done(work_steps: int) -> float:
        """Part of the time of a round, and of what goes on after it, that is the round's."""
        session = group.prefilled(options)
        wall = slow_round(group, session, component, k, work_steps)
        session.timings()
        waited = seconds(mx.synchronize)
        witness.add(drafted=k, accepted=1, rejected=k - 1, compared=1)
        return wall / (wall + waited)

    share = best(done, DONE)
    assert share >= DONE, (
        f"after a round {component} was still computed; the round had {share:.0%} of that time"
    )
    witness.require(rejected=1)
