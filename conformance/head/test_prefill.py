"""The head is prefilled with every pair of the prompt."""

from mtp_conformance import Capability, Cell, Options, Oracles, Witness, case, require_equal
from mtp_conformance.grid import spread


@case(
    "head.prefill.every-pair",
    clause="head-alignment",
    needs=("state", "head-state"),
    oracle="a prefill of one token a pass",
    witness="arrays compared",
    since="0.1.0",
    cells=spread(strategies=("tape",), depths=(1, 2, 5)),
)
def test_every_pair(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """The head holds one pair fewer than the prompt, the same bits for every prefill step size.

    The axis K stands for the step size.
    """
    oracles.need(Capability.STATE, Capability.HEAD_STATE)
    group = oracles.group(cell)
    session = group.open(Options(prefill_step_size=cell.k or 1))
    session.prefill(group.prompt)
    state = session.state()
    assert state["head.0.offset"].item() == len(group.prompt) - 1
    compared = require_equal(state, group.plain_state(0), what="a prefill in one pass")
    witness.add(compared=compared)
