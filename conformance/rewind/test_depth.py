"""K changes between rounds, to 0 and back."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, run_rounds
from mtp_conformance.grid import spread

SCRIPTS = (
    ((2, 2), (0, 0), (2, 0)),
    ((3, 1), (1, 0), (4, 2)),
    ((0, 0), (8, 3), (0, 0), (1, 1)),
    ((5, 0), (2, 1), (0, 0), (0, 0), (3, 3)),
)
"""Rounds as (K, accepted)."""


@case(
    "rewind.depth.k-changes",
    clause="transition-closure",
    needs=("state", "drafts"),
    oracle="rounds that were given the accepted drafts alone",
    witness="accepts and rejects",
    faults=("R10",),
    since="0.1.0",
    cells=spread(),
)
def test_k_changes(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Rounds of changing depth leave the state of the same rounds without rejects."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    for script in SCRIPTS:
        run_rounds(oracles, cell, script, witness)
    witness.require(accepted=1, rejected=1)
