"""The head is prefilled with every pair of the prompt."""

import mlx.core as mx

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
    due = {"head.0.offset": mx.array(len(group.prompt) - 1, mx.int32)}
    shown = {"head.0.offset": state["head.0.offset"]}
    require_equal(shown, due, what="the number of pairs in the prompt")
    with oracles.bits_against_prefill(group, 0):
        compared = require_equal(state, group.plain_state(0), what="a prefill in one pass")
    witness.add(compared=compared)
