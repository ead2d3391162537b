"""Turns keep nothing alive but the state."""

import gc

import mlx.core as mx

from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.grid import spread

WARM, TURNS = 2, 6
TURN = (10, 256, 97)
"""What the user says each time; an end of text stands in it."""


@case(
    "memory.turns.flat",
    clause="memory-accounting",
    needs=("state", "continue"),
    oracle="the bytes of the state itself",
    witness="turns",
    faults=("M6",),
    since="0.1.0",
    cells=spread(models=("window",)),
)
def test_turns(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """From turn to turn no more memory is held than the state grows by: old caches are let go."""
    oracles.need(Capability.STATE, Capability.CONTINUE)
    if not oracles.runtime.in_process:
        raise Unsupported("the memory of a process of its own cannot be seen from here")
    session = oracles.group(cell).prefilled(oracles.options(cell))
    held: list[tuple[int, int]] = []
    for number in range(1, TURNS + 1):
        session.extend(TURN)
        if number in (WARM, TURNS):
            size = sum(array.nbytes for array in session.state().values())
            gc.collect()
            mx.synchronize()
            held.append((mx.get_active_memory(), size))
    (before, size_before), (after, size_after) = held
    grown, allowed = after - before, size_after - size_before
    assert grown <= allowed, (
        f"{grown} bytes more are held after {TURNS - WARM} turns, {allowed} of them by the state: "
        f"{(grown - allowed) // (TURNS - WARM)} bytes a turn are never let go"
    )
    witness.add(compared=len(held), turns=TURNS)
    witness.require(turns=TURNS)
