"""One round, every depth and accept count: the state afterwards."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_rewound
from mtp_conformance.grid import one_round


@case(
    "rewind.state.one-round",
    clause="rewound-state",
    needs=("state", "drafts"),
    oracle=(
        "a round that was given the accepted drafts alone; K=0; one forward pass over all tokens"
    ),
    witness="arrays compared, and a reject unless all drafts are right",
    faults=("R1", "R3", "R13", "R16"),
    since="0.1.0",
    cells=one_round,
)
def test_one_round(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After a round every array of every cache is what it is had no rejected draft existed."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    require_rewound(oracles, cell, witness)
    witness.require(drafted=cell.k or 0, rejected=int((cell.accepted or 0) < (cell.k or 0)))
