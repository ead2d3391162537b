"""Where decoding without drafts ends, which may be a step ahead of the tokens it hands out."""

from typing import Any

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
    target_arrays,
)
from mtp_conformance.grid import spread

LENGTH = 4


@case(
    "emit.stop.without-drafts",
    clause="emitted-frontier",
    needs=("stream", "drafts", "state"),
    oracle="one prefill over the emitted tokens; K=0 by single rounds",
    witness="ends by a stop, and by the budget",
    faults=("L1",),
    since="0.1.0",
    cells=spread(models=("window", "qsa"), depths=(0,), not_by_default=("qsa",)),
)
def test_plain_end(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Without drafts, too, the caches end with the last token but one, whatever ends it.

    A step that was under way for a token that nobody wants leaves nothing, and the next round goes
    on from the end.
    """
    oracles.need(Capability.STREAM, Capability.DRAFTS, Capability.STATE)
    oracles.held_after_stop(1)
    group, options = oracles.group(cell), oracles.options(cell)
    stream = group.stream(LENGTH + 1)
    with oracles.bits_against_prefill(group, 0):
        for end in range(2, LENGTH + 1):
            stop = stream[end - 2 : end]
            first = next(n for n in range(2, end + 1) if stream[n - 2 : n] == stop)
            ways: dict[str, dict[str, Any]] = {
                "stopped": {"max_tokens": 2 * LENGTH, "stop_sequences": [stop]},
                "budget": {"max_tokens": end},
            }
            for way, said in ways.items():
                session, due = group.open(options), first if way == "stopped" else end
                made = session.generate(group.prompt, num_draft_tokens=0, **said)
                compared = require_tokens(made.tokens, stream[:due], what="K=0 by single rounds")
                held = oracles.held_after_stop(due)
                compared += require_equal(
                    target_arrays(session.state()),
                    target_arrays(group.direct_state(held)),
                    what=f"one prefill over what {due} emitted tokens leave in the caches",
                )
                following = session.round(()).tokens
                what = "K=0 by single rounds, going on"
                compared += require_tokens(following, stream[due : due + 1], what=what)
                witness.add(compared=compared, **{way: 1})
    witness.require(stopped=LENGTH - 1, budget=LENGTH - 1)
