"""The budget ends decoding at every index of a block."""

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.grid import spread


@case(
    "emit.budget.every-index",
    clause="emitted-frontier",
    needs=("stream", "state", "drafts"),
    oracle="K=0 of the same runtime; one prefill over the emitted tokens",
    witness="accepts",
    since="0.1.0",
    cells=spread(depths=(4,)),
)
def test_budget(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever max_tokens falls in a block, the caches end at the emitted frontier."""
    oracles.need(Capability.STREAM, Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell)
    k = cell.k or 0
    with oracles.bits_against_steps(group, k):
        for budget in range(1, 2 * k + 3):
            session = group.open(options)
            stream = group.stream(2 * k + 4)
            made = session.generate(
                group.prompt, num_draft_tokens=k, max_tokens=budget, guess=stream
            )
            compared = require_tokens(made.tokens, stream[:budget], what="K=0")
            compared += require_equal(
                view(session.state()),
                view(group.direct_state(budget - 1)),
                what=f"one prefill over {budget} emitted tokens but the last",
            )
            witness.add(compared=compared, **made.engagement)
    witness.require(accepted=k)
