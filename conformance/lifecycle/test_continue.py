"""The next turn, on the caches that the last one left."""

from collections.abc import Callable

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    logits_of,
    require_equal,
    require_tokens,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.group import State
from mtp_conformance.protocol import Outcome

TURN = (10, 256, 97, 101, 32)
"""What the user says next; an end of text stands in it."""
SCRIPT = ((3, 1), (2, 2), (0, 0), (3, 0))
"""Rounds as (K, accepted)."""


@case(
    "lifecycle.continue.after-stop",
    clause="prefix-reuse",
    needs=("continue", "stream", "guess"),
    oracle="a cold run over prompt, emitted tokens and the next turn",
    witness="accepts, and ends inside a block",
    faults=("L1", "H2"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS, depths=(3,)),
)
def test_after_stop(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever the last turn ended in a block, the next one is as if everything were cold.

    Ends by a stop token where it is the first of its kind, else by the budget.
    """
    oracles.need(Capability.CONTINUE, Capability.STREAM, Capability.GUESS)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell)
    k = cell.k or 0
    stream = group.stream(2 * k + 4)
    with oracles.bits_against_prefill(group, k):
        for end in range(1, k + 4):
            session = group.open(options)
            last, before = stream[end - 1], stream[: end - 1]
            made = session.generate(
                group.prompt,
                num_draft_tokens=k,
                max_tokens=end if last in before else 2 * k + 4,
                eos_token_ids=() if last in before else (last,),
                guess=stream,
            )
            require_tokens(made.tokens, stream[:end], what="K=0 up to the end")
            turn, cold = session.extend(TURN), group.open(options)
            due = cold.prefill([*group.prompt, *made.tokens, *TURN])
            compared = _require_cold(oracles, (session, turn), (cold, due), view)
            inside = int(1 < end <= k + 1)
            witness.add(compared=compared, inside=inside, **made.engagement)
    witness.require(accepted=k, inside=1)


@case(
    "lifecycle.continue.after-rounds",
    clause="prefix-reuse",
    needs=("continue", "drafts"),
    oracle="a cold run over prompt, emitted tokens and the next turn",
    witness="accepts and rejects",
    faults=("L7", "P2"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS[::2]),
)
def test_after_rounds(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """After rounds with rejects the next turn, and the one after it, are as if cold."""
    oracles.need(Capability.CONTINUE, Capability.DRAFTS)
    group = oracles.group(cell)
    oracles.need_depth(3)
    options, view = oracles.prefill_like(cell)
    with oracles.bits_against_prefill(group, 3):
        session = group.open(options)
        emitted = list(session.prefill(group.prompt).tokens)
        for k, accepted in SCRIPT:
            outcome = session.round(group.drafts(len(emitted), k, accepted))
            emitted += outcome.tokens
            witness.add(drafted=k, accepted=outcome.accepted, rejected=k - outcome.accepted)
        for _ in range(2):
            turn = session.extend(TURN)
            emitted += TURN
            cold = group.open(options)
            due = cold.prefill([*group.prompt, *emitted])
            compared = _require_cold(oracles, (session, turn), (cold, due), view)
            witness.add(compared=compared)
            emitted += turn.tokens
    witness.require(accepted=1, rejected=1)


Turn = tuple[CheckedSession, Outcome]


def _require_cold(oracles: Oracles, warm: Turn, cold: Turn, view: Callable[[State], State]) -> int:
    """Demand that two sessions are at one place: token, logits and, where shown, state."""
    what = "a cold run over everything so far"
    (session, done), (other, due) = warm, cold
    compared = require_tokens(done.tokens, due.tokens, what=what)
    if oracles.runtime.offers(Capability.LOGITS):
        compared += require_equal(logits_of(done.logits), logits_of(due.logits), what=what)
    if oracles.runtime.offers(Capability.STATE):
        compared += require_equal(view(session.state()), view(other.state()), what=what)
    return compared
