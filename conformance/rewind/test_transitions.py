"""Every ordered pair of round outcomes: what one round leaves, the next one stumbles over."""

from itertools import product

from mtp_conformance import Capability, Cell, Oracles, Witness, case, run_rounds
from mtp_conformance.grid import spread


@case(
    "rewind.transitions.ordered-pairs",
    clause="transition-closure",
    needs=("state", "drafts"),
    oracle="rounds that were given the accepted drafts alone",
    witness="accepts and rejects",
    faults=("R7", "R10"),
    since="0.1.0",
    cells=spread(depths=(1, 2, 3)),
)
def test_ordered_pairs(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After any two rounds in a row the state is that of two rounds without rejects."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    k = cell.k or 0
    for first, second in product(range(k + 1), repeat=2):
        run_rounds(oracles, cell, [(k, first), (k, second)], witness)
    witness.require(accepted=1, rejected=1)
