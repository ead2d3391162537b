"""A rewind that takes long."""

import time
from functools import cache

import mlx.core as mx

from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.checked import CheckedSession
from mtp_conformance.exactness import require_equal
from mtp_conformance.grid import spread
from mtp_conformance.group import Group
from mtp_conformance.slowing import slowed

LONG = 0.02
"""Seconds of work that stand out from a round."""
TRIES = 3
LEAST = 0.25
"""Part of what the work takes by itself that has to be charged; the computer may be busy."""
OFFSETS = ("offset", "index_offset")


@cache
def steps() -> int:
    """How many steps of work are long on this device."""
    count = 2
    while _seconds(count) < LONG:
        count *= 2
    return count


def cost() -> float:
    """Seconds that the work takes by itself, at best."""
    return min(_seconds(steps()) for _ in range(TRIES))


def _seconds(count: int) -> float:
    (work,) = slowed([mx.zeros(1)], count)
    start = time.perf_counter()
    mx.eval(work)
    return time.perf_counter() - start


def components(session: CheckedSession) -> list[str]:
    """Every component of a session's caches, `layers.recurrent` and the like."""
    found = {(name.split(".")[0], name.rpartition(".")[2]) for name in session.state()}
    kinds = {(part, name) for part, name in found if name not in (*OFFSETS, "hidden")}
    return sorted(f"{part}.{name}" for part, name in kinds)


def slow_round(group: Group, session: CheckedSession, component: str, k: int) -> None:
    """A round that accepts one draft of K, and whose rewind leaves a component waiting."""
    session.slow_rewind(component, steps())
    session.unseen("round", group.drafts(1, k, 1))


@case(
    "timing.rewind.slow-is-charged",
    clause="timers",
    needs=("timing", "slow-rewind", "state", "drafts"),
    oracle="how long the same work takes by itself",
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
    before_all, charged, late = cost(), dict[str, float](), dict[str, float]()
    for component in components(plain):
        session = group.prefilled(options)
        before = session.timings().get("rewind", 0.0)
        slow_round(group, session, component, k)
        charged[component] = session.timings()["rewind"] - before
        if oracles.runtime.in_process:
            late[component] = _left(session)
        compared = require_equal(session.state(), plain.state(), what="a rewind that was not slow")
        witness.add(drafted=k, accepted=1, rejected=k - 1, compared=compared, slow=1)
    due = min(before_all, cost())
    for component, spent in charged.items():
        assert spent >= LEAST * due, (
            f"{component} took {due:.3f} s to put back; the rewind was charged with {spent:.3f} s"
        )
    for component, spent in late.items():
        assert spent < LEAST * due, f"{component} was left for {spent:.3f} s to whoever looks at it"
    witness.require(rejected=1, slow=len(components(plain)))


def _left(session: CheckedSession) -> float:
    """Seconds it takes to evaluate what a round left."""
    start = time.perf_counter()
    mx.eval(session.unevaluated_state())
    return time.perf_counter() - start


@case(
    "timing.totals.after-all-work",
    clause="timers",
    needs=("timing", "slow-rewind", "state", "drafts"),
    oracle="how long the same work takes by itself",
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
    most = LEAST * cost()
    component, waits = components(group.prefilled(options))[-1], list[float]()
    for _ in range(TRIES):
        session = group.prefilled(options)
        slow_round(group, session, component, k)
        session.timings()
        start = time.perf_counter()
        mx.synchronize()
        waits.append(time.perf_counter() - start)
        witness.add(drafted=k, accepted=1, rejected=k - 1, compared=1)
    assert min(waits) < most, f"{component} was computed for {min(waits):.3f} s after the round"
    witness.require(rejected=1)
