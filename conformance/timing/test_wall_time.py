"""Seconds by phase, against a clock outside."""

import time
from collections.abc import Callable, Mapping

from mtp_conformance import Capability, Cell, Oracles, Witness, case
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import spread

TRIES = 8
SHARE = 0.9
"""Least part of a call's time that its phases account for, in the best of some tries."""
ROUND = ("draft", "verify", "accept", "rewind")


@case(
    "timing.phases.wall-time",
    clause="timers",
    needs=("timing", "drafts"),
    oracle="a clock outside",
    witness="rejects",
    faults=("C1", "C2", "C3"),
    since="0.1.0",
    cells=spread(models=("attn", "gdn+mlx-lm"), strategies=("tape", "replay"), depths=(3,)),
)
def test_wall_time(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A prompt's time is in `prefill`, a round's in the other phases, `rewind` among them."""
    oracles.need(Capability.TIMING, Capability.DRAFTS)
    group, k = oracles.group(cell), cell.k or 0
    drafts = group.drafts(1, k, 1)
    prompts: list[float] = []
    rounds: list[float] = []
    for _ in range(TRIES):
        session = group.open(oracles.options(cell))
        spent, wall = _timed(session, lambda s=session: s.unseen("prefill", group.prompt))
        prompts.append(spent.get("prefill", 0.0) / wall)
        spent, wall = _timed(session, lambda s=session: s.unseen("round", drafts))
        rounds.append(sum(spent.get(phase, 0.0) for phase in ROUND) / wall)
        assert not spent.get("prefill"), "a round's time was charged to the prefill"
        missing = [phase for phase in ("verify", "rewind") if spent.get(phase, 0.0) <= 0]
        assert not missing, f"a round that rejected spent no time in {', '.join(missing)}"
        witness.add(drafted=k, accepted=1, rejected=k - 1, compared=2)
    for what, shares in (("a prompt", prompts), ("a round", rounds)):
        assert max(shares) >= SHARE, (
            f"at best {max(shares):.0%} of the time of {what} is in its phases"
        )
        assert min(shares) <= 1, f"the phases of {what} took longer than the call"
    witness.require(rejected=1)


def _timed(
    session: CheckedSession, call: Callable[[], object]
) -> tuple[Mapping[str, float], float]:
    """Seconds by phase that a call added, and how long it took."""
    before, start = session.timings(), time.perf_counter()
    call()
    wall = time.perf_counter() - start
    after = session.timings()
    return {phase: after[phase] - before.get(phase, 0.0) for phase in after}, wall
