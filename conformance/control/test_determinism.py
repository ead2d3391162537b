"""K=0 twice: the control without which no comparison means anything."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case
from mtp_conformance.grid import spread


@case(
    "control.determinism.k0-twice",
    clause="determinism",
    needs=("state", "logits", "drafts"),
    oracle="a second run",
    witness="arrays compared",
    since="0.1.0",
    cells=spread(strategies=("tape",)),
)
def test_k0_twice(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Two K=0 runs from one prompt agree in every bit of tokens, logits and state."""
    oracles.need(Capability.STATE, Capability.LOGITS, Capability.DRAFTS)
    witness.add(compared=oracles.check_determinism(cell, rounds=8))
