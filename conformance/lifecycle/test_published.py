"""What a session handed out stays what it was."""

import mlx.core as mx

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal
from mtp_conformance.grid import LIFECYCLE_MODELS, spread

SCRIPT = ((0, 0), (3, 1), (2, 0), (0, 0), (3, 3))
"""Rounds as (K, accepted)."""


@case(
    "lifecycle.published.shown-state",
    clause="published-state",
    needs=("state", "drafts"),
    oracle="copies made when the state was shown",
    witness="rejects after it was shown",
    faults=("L11", "L13"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS[::2]),
)
def test_shown_state(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Arrays that were shown after a round are not written into by the rounds that follow."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group, options = oracles.group(cell), oracles.options(cell)
    oracles.need_depth(3)
    session = group.prefilled(options)
    shown: list[tuple[dict[str, mx.array], dict[str, mx.array]]] = []
    emitted = 1
    for k, accepted in SCRIPT:
        arrays = session.uncopied_state()
        copies = {name: array + 0 for name, array in arrays.items()}
        mx.eval(copies)
        shown.append((arrays, copies))
        outcome = session.round(group.drafts(emitted, k, accepted))
        emitted += len(outcome.tokens)
        witness.add(drafted=k, accepted=outcome.accepted, rejected=k - outcome.accepted)
    for number, (arrays, copies) in enumerate(shown):
        what = f"what was shown after round {number}"
        witness.add(compared=require_equal(arrays, copies, what=what, round=number))
    witness.require(rejected=1)
