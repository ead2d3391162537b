"""Rounds keep nothing alive but the state."""

import gc

import mlx.core as mx

from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.grid import spread

WARM, ROUNDS, MANY = 4, 12, 300
"""Rounds before the first look at memory, and from it to the second: many where there is time."""


@case(
    "memory.rounds.flat",
    clause="memory-accounting",
    needs=("state", "drafts"),
    oracle="the bytes of the state itself",
    witness="accepts and rejects",
    faults=("M1", "W4"),
    since="0.1.0",
    cells=spread(models=("window", "flash-next", "gdn+mlx-lm"), depths=(2,)),
)
def test_flat(oracles: Oracles, cell: Cell, witness: Witness, profile: str) -> None:
    """From round to round no more memory is held than the state grows by.

    Copies taken in case of a reject, and records of rounds that are over, are let go.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    if not oracles.runtime.in_process:
        raise Unsupported("the memory of a process of its own cannot be seen from here")
    group, k = oracles.group(cell), cell.k or 0
    session, emitted = group.prefilled(oracles.options(cell)), 1
    rounds = MANY if profile in ("nightly", "full") else ROUNDS
    script = [(k, 0), (k, k)] * ((WARM + rounds) // 2)
    last = emitted + sum(accepted + 1 for _, accepted in script)
    group.stream(last + 1)  # expected values are made now, and stay
    held: list[tuple[int, int]] = []
    for number, (drafted, accepted) in enumerate(script, start=1):
        session.round(group.drafts(emitted, drafted, accepted))
        emitted += accepted + 1
        if number in (WARM, len(script)):
            size = sum(array.nbytes for array in session.state().values())
            held.append((_active(), size))
        witness.add(drafted=drafted, accepted=accepted, rejected=drafted - accepted)
    (before, size_before), (after, size_after) = held
    grown, allowed = after - before, size_after - size_before
    assert grown <= allowed, (
        f"{grown} bytes more are held after {rounds} rounds, {allowed} of them by the state: "
        f"{(grown - allowed) // rounds} bytes a round are never let go"
    )
    witness.add(compared=len(held))
    witness.require(accepted=1, rejected=1)


def _active() -> int:
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()
