"""Whether a block of rows gives the bits its rows give one by one, for the loaded model.

This is the probe of the model: where it fails, streams are compared with ties in mind, and
states with runs of the same shape. Four draws, one of them without ties in an index.
"""

from dataclasses import replace

import mlx.core as mx

from mtp_conformance import (
    Capability,
    Cell,
    Options,
    Oracles,
    Witness,
    case,
    logits_of,
    require_equal,
    target_arrays,
)
from mtp_conformance.grid import STRATEGIES, spread


@case(
    "control.rows.block-equals-steps",
    clause="row-exactness",
    level="should",
    needs=("logits", "drafts"),
    oracle="K=0 of the same runtime",
    witness="logits rows compared",
    since="0.1.0",
    cells=spread(strategies=("tape",), depths=(1, 2, 3, 5, 8)),
)
def test_block_equals_steps(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A verify pass gives every row the logits a one-token step gives it."""
    oracles.need(Capability.LOGITS, Capability.DRAFTS)
    k = cell.k or 0
    for group in (oracles.group(cell, tie_free=True), *oracles.draws(cell)):
        outcome = group.prefilled(Options()).round(group.drafts(1, k, k))
        steps = mx.concatenate([group.plain_logits(i) for i in range(1, k + 2)])
        compared = require_equal(
            logits_of(outcome.logits), {"logits": steps}, what="one-token steps", round=1
        )
        witness.add(compared=compared, drafted=k, accepted=outcome.accepted)


@case(
    "control.rows.prefill-equals-steps",
    clause="row-exactness",
    level="should",
    needs=("state", "drafts"),
    oracle="K=0 of the same runtime",
    witness="arrays compared",
    since="0.1.0",
    cells=spread(strategies=("tape",), depths=(3,)),
)
def test_prefill_equals_steps(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """One pass over prompt and tokens leaves the state that a prompt and steps leave."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group, rounds = oracles.group(cell), cell.k or 0
    compared = require_equal(
        target_arrays(group.direct_state(rounds)),
        target_arrays(group.plain_state(rounds)),
        what=f"a prompt and {rounds} one-token steps",
    )
    witness.add(compared=compared)


@case(
    "control.rows.row-exact",
    clause="row-exact-mode",
    level="must",
    needs=("logits", "state", "drafts", "row-exact"),
    oracle="K=0 of the same runtime",
    witness="logits rows and arrays compared after a reject",
    since="0.1.0",
    cells=spread(
        models=("window", "ple", "qsa", "gdn-moe", "gdn+mlx-lm"), strategies=STRATEGIES, depths=(3,)
    ),
)
def test_row_exact(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Told to decode row-exact, a runtime gives the bits of one-token steps, on any device.

    Those of the head too, where its rows can be made from target residuals, as a step makes them.
    """
    oracles.need(Capability.LOGITS, Capability.STATE, Capability.DRAFTS, Capability.ROW_EXACT)
    group, k, accepted = oracles.group(cell), cell.k or 0, 2
    heads = "target" if "target" in oracles.description.head_rows else ""
    view = dict[str, mx.array] if heads else target_arrays
    options = oracles.options(cell, head_rows=heads)
    session = group.open(replace(options, row_exact=True))
    session.prefill(group.prompt)
    outcome = session.round(group.drafts(1, k, accepted))
    rows = logits_of(outcome.logits)["logits"][: accepted + 1]
    steps = mx.concatenate([group.plain_logits(i) for i in range(1, accepted + 2)])
    what = "one-token steps"
    compared = require_equal({"logits": rows}, {"logits": steps}, what=what, round=1)
    compared += require_equal(
        view(session.state()),
        view(group.plain_state(accepted + 1)),
        what=what,
        round=1,
    )
    witness.add(
        compared=compared, drafted=k, accepted=outcome.accepted, rejected=k - outcome.accepted
    )
