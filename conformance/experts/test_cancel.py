"""Rounds that are interrupted while experts are read."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtp_conformance import (
    Capability,
    Cell,
    Inconclusive,
    Oracles,
    Unsupported,
    Witness,
    case,
    require_equal,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import spread
from mtp_conformance.interrupting import interrupted_read
from mtp_conformance.recording import alone, play, require_recorded

SCRIPT = ((2, 1), (3, 1), (0, 0))
"""Rounds as (K, accepted); the second one is interrupted."""
AT = (1, 2, 3, 8, 14)
"""Which read the interrupt meets: the first ones are the head's."""
SLOTS = 2


@case(
    "experts.cancel.mid-read",
    clause="expert-files",
    needs=("experts", "state", "drafts"),
    oracle="the state before the round; rounds that nobody interrupted, with experts in memory",
    witness="rounds interrupted during a read",
    since="0.1.0",
    cells=spread(
        models=("gdn-moe", "gdn-moe+mlx-lm", "flash-next"), only_in_full=("gdn-moe+mlx-lm",)
    ),
)
def test_mid_read(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After Ctrl-C during a read the caches are at the frontier, and no slot or file is lost."""
    oracles.need(Capability.EXPERTS, Capability.STATE, Capability.DRAFTS)
    if not oracles.runtime.in_process:
        raise Unsupported("a process of its own cannot be interrupted from here")
    group, options = oracles.group(cell), oracles.options(cell)
    rounds, sizes = alone(group, options, SCRIPT), oracles.expert_sizes(group)
    budget = {"expert_budget": SLOTS * sizes.nbytes, "head_expert_budget": sizes.head_nbytes}
    session = group.open(replace(options, **budget))
    session.prefill(group.prompt)
    play(session, rounds[:1])
    frontier, files, threads = session.state(), _files(), threading.active_count()
    for number in AT:
        _interrupt(session, rounds[1].drafts, number)
        what = f"the state before a round that was interrupted at its read {number}"
        witness.add(compared=require_equal(session.state(), frontier, what=what), cut=1)
        assert _files() <= files, "an interrupted round left a file open"
        assert threading.active_count() <= threads, "an interrupted round left a thread running"
    require_recorded(session, rounds[1:], witness, what="rounds nobody interrupted", first=2)
    witness.require(cut=len(AT), rejected=1)


def _interrupt(session: CheckedSession, drafts: Sequence[int], number: int) -> None:
    """Begin a round that is interrupted at one of its reads."""
    with interrupted_read(number) as reads:
        try:
            session.round(drafts)
        except KeyboardInterrupt:
            return
    raise Inconclusive(f"there are {len(reads)} reads to interrupt in a round, not {number}")


def _files() -> int:
    """How many files are open, where the system says."""
    files = Path("/dev/fd")
    return len(list(files.iterdir())) if files.is_dir() else 0
