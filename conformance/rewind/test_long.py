"""Two hundred rounds of random accepts: errors that add up."""

import random

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
from mtp_conformance.grid import CLASS_MODELS, spread

ROUNDS = 200
DEEPEST = 3


@case(
    "rewind.long.random-accepts",
    clause="rewound-state",
    needs=("state", "drafts"),
    oracle="one forward pass over all tokens; K=0",
    witness="accepts and rejects",
    faults=("R14",),
    since="0.1.0",
    cells=spread(only_in_full=CLASS_MODELS),
)
def test_random_accepts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After 200 rounds of random depth and accepts the caches hold no trace of any reject."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    oracles.need_depth(DEEPEST)
    oracles.need_exact(group, DEEPEST)
    chance = random.Random(cell.id)
    session = group.prefilled(oracles.options(cell))
    emitted = 1
    for number in range(1, ROUNDS + 1):
        k = chance.randint(0, DEEPEST)
        accepted = chance.randint(0, min(k, 1))
        outcome = session.round(group.drafts(emitted, k, accepted))
        due = group.stream(emitted + accepted + 1)[emitted:]
        require_emitted(outcome, due, round=number)
        emitted += accepted + 1
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted)
    state = target_arrays(session.state())
    for what, expected in (
        ("the K=0 run", group.plain_state(emitted - 1)),
        ("one direct forward pass", group.direct_state(emitted - 1)),
    ):
        compared = require_equal(state, target_arrays(expected), what=what, round=ROUNDS)
        witness.add(compared=compared)
    witness.require(accepted=ROUNDS // 10, rejected=ROUNDS // 10)
