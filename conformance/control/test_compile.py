"""Compiled and eager execution of the same model."""

from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case, require_equal
from mtp_conformance.compiling import can_compile, compilation
from mtp_conformance.grid import spread

ROUNDS = 3


@case(
    "control.compile.equals-eager",
    clause="compilation",
    level="should",
    needs=("state", "logits", "drafts"),
    oracle="the eager run",
    witness="arrays compared",
    since="0.1.0",
    cells=spread(models=("gdn+mlx-lm",), strategies=("tape",)),
)
def test_compiled_equals_eager(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A K=0 run gives the same bits whether mlx compiles or not."""
    oracles.need(Capability.STATE, Capability.LOGITS, Capability.DRAFTS)
    if not oracles.runtime.in_process:
        raise Unsupported("what a process of its own compiles is not this process's to switch")
    if not can_compile():
        raise Unsupported("mlx's CPU backend compiles with g++, and there is none")
    key = oracles.group(cell).key
    with compilation(on=False):
        eager = oracles.fresh_group(key)
        eager.plain_state(ROUNDS)
    with compilation(on=True):
        other = oracles.fresh_group(key)
        other.plain_state(ROUNDS)
    for n in range(ROUNDS + 1):
        compared = require_equal(
            {**other.plain_state(n), "logits": other.plain_logits(n)},
            {**eager.plain_state(n), "logits": eager.plain_logits(n)},
            what="the eager run",
        )
        witness.add(compared=compared)
