"""A request after others: a long one, one of another prompt, one to another model."""

from dataclasses import replace

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
from mtp_conformance.group import Group, State
from mtp_conformance.protocol import Options

SHORT, LONG = 9, 40
SAME_SHAPE = {"gdn": "gdn-agree", "gdn+mlx-lm": "gdn-agree+mlx-lm"}
"""Another model that has every tensor in the same shape."""


@case(
    "lifecycle.fresh.after-others",
    clause="fresh-start",
    needs=("stream", "guess", "state"),
    oracle="the same request before the others; K=0 and one prefill of each model",
    witness="accepts and rejects",
    faults=("N8", "X7"),
    since="0.1.0",
    cells=spread(models=tuple(SAME_SHAPE), depths=(3,)),
)
def test_after_others(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Neither a long request nor a model of the same shape changes what comes after it."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.STATE)
    oracles.held_after_stop(1)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    other = oracles.group(replace(cell, model=SAME_SHAPE[str(cell.model)]))
    with oracles.bits_against_prefill(group, k), oracles.bits_against_prefill(other, k):
        tokens, state = _answer(oracles, group, options, k, SHORT, witness)
        _answer(oracles, group, options, k, LONG, witness)
        _answer(oracles, other, options, k, SHORT, witness)
        again, state_again = _answer(oracles, group, options, k, SHORT, witness)
        witness.add(compared=require_tokens(again, tokens, what="the same request before others"))
        witness.add(
            compared=require_equal(state_again, state, what="the same request before others")
        )
    witness.require(accepted=1, rejected=1)


def _answer(
    oracles: Oracles, group: Group, options: Options, k: int, length: int, witness: Witness
) -> tuple[list[int], State]:
    """Tokens, which are those of K=0, and the target's state, which is that of a prefill."""
    stream = group.stream(length)
    session = group.open(options)
    made = session.generate(
        group.prompt,
        num_draft_tokens=k,
        max_tokens=length,
        guess=[(token + 1) % 256 if i % 4 == 3 else token for i, token in enumerate(stream)],
    )
    compared = require_tokens(made.tokens, stream, what="K=0 of the same model")
    state = target_arrays(session.state())
    direct = target_arrays(group.direct_state(oracles.held_after_stop(length)))
    compared += require_equal(state, direct, what=f"one prefill over {length} emitted tokens")
    witness.add(compared=compared, **made.engagement)
    return list(made.tokens), state
