"""The head keeps a row for every pair, whatever its rows are made from."""

import mlx.core as mx

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_emitted,
    require_equal,
    target_arrays,
)
from mtp_conformance.grid import spread
from mtp_conformance.group import State

SCRIPT = ((2, 2), (1, 1), (3, 1), (0, 0), (2, 0), (0, 0))
_ROWS = {"keys": 2, "values": 2}


@case(
    "head.rows.one-a-pair",
    clause="head-alignment",
    needs=("state", "head-state", "drafts"),
    oracle="one prefill over all tokens",
    witness="accepts and rejects",
    faults=("K1", "K2", "H3", "H4"),
    since="0.1.0",
    cells=spread(models=("window", "gdn-mtp2", "flash-next", "gdn+mlx-lm"), strategies=("tape",)),
)
def test_one_row_a_pair(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After every round the head is one row behind the target, with the rows of a prefill.

    Rows of accepted drafts may be the drafting chain's; those of anchors and of the prompt are
    a prefill's to the bit, in the head's first layer, where no row depends on another.
    """
    oracles.need(Capability.STATE, Capability.HEAD_STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    session = group.prefilled(oracles.options(cell))
    emitted, anchors = 1, list(range(len(group.prompt) - 1))
    with oracles.bits_against_prefill(group, max(k for k, _ in SCRIPT)):
        for number, (k, accepted) in enumerate(SCRIPT, start=1):
            outcome = session.round(group.drafts(emitted, k, accepted))
            due = group.stream(emitted + accepted + 1)[emitted:]
            require_emitted(outcome, due, round=number)
            anchors.append(len(group.prompt) + emitted - 2)
            emitted += accepted + 1
            state, direct = session.state(), group.direct_state(emitted - 1)
            what = "one prefill over all tokens"
            require_equal(_lengths(state), _lengths(direct), what=what, round=number)
            mine, its = ({**target_arrays(s), **_rows(s, anchors)} for s in (state, direct))
            compared = require_equal(mine, its, what=what, round=number)
            witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=compared)
    witness.require(accepted=1, rejected=1)


def _lengths(state: State) -> State:
    """How many tokens each layer holds, target before head."""
    return {name: array for name, array in state.items() if name.endswith(".offset")}


def _rows(state: State, pairs: list[int]) -> State:
    """Rows of the head's first layer at some pairs, and the hidden it drafts from next."""
    rows = mx.array(pairs)
    found = {
        name: mx.take(array, rows, axis=_ROWS[component])
        for name, array in state.items()
        if name.startswith("head.0.") and (component := name.rpartition(".")[2]) in _ROWS
    }
    return {**found, "head.frontier.hidden": state["head.frontier.hidden"]}
