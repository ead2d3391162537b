"""Memory that is not in use: filled with numbers that would show."""

import mlx.core as mx

from mtp_conformance import Capability, Cell, Oracles, Witness, case
from mtp_conformance.grid import spread
from mtp_conformance.recording import alone, require_recorded

POISON = 2.0**13
"""Large, so that any use of it shows, and finite: what is masked may be multiplied by 0."""
SCRIPT = ((3, 1), (0, 0), (2, 0))
"""Rounds as (K, accepted)."""


@case(
    "memory.dead-rows.no-effect",
    clause="dead-rows",
    needs=("state", "drafts", "poison"),
    oracle="a session of its own that makes the same rounds over memory as it is",
    witness="arrays with dead rows in every round, and rejects",
    faults=("H4",),
    since="0.1.0",
    cells=spread(models=("window", "gdn-wide+mlx-lm", "qsa"), not_by_default=("qsa",)),
)
def test_no_effect(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Whatever lies past the frontier of a cache, no token, logit or state hangs on it.

    Memory that the session may be given is filled before it begins, and before every round rows of
    rejected drafts and rows never written.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS, Capability.POISON)
    oracles.need_depth(3)
    group, options = oracles.group(cell), oracles.options(cell)
    rounds = alone(group, options, SCRIPT)
    _leave_dirty_memory()
    session = group.open(options)
    session.prefill(group.prompt)
    for number, recorded in enumerate(rounds, start=1):
        witness.add(poisoned=int(session.poison(POISON) > 0))
        what = "the same rounds over memory as it is"
        require_recorded(session, [recorded], witness, what=what, first=number)
    witness.require(poisoned=len(rounds), rejected=1)


def _leave_dirty_memory() -> None:
    """Fill pieces of memory of many sizes, and give them back."""
    mx.eval([mx.full(2**size, POISON) for size in range(4, 17) for _ in range(8)])
