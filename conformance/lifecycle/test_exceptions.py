"""Errors in the middle of a pass.

One evaluation of mlx after the other is made to fail, until a call goes through without.
"""

from collections.abc import Callable
from dataclasses import replace

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.failing import each_failure
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.protocol import Outcome

TURN = (10, 256, 97, 101, 32)
"""What the user says next; an end of text stands in it."""


@case(
    "lifecycle.exceptions.in-a-round",
    clause="exception-safety",
    needs=("state", "drafts"),
    oracle="the state before the round; the same round in which nothing failed",
    witness="evaluations that failed",
    faults=("L2", "L3"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS[::2], depths=(3,), not_by_default=("qsa",)),
)
def test_in_a_round(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A round that fails at any evaluation leaves the frontier, or a session that says no.

    A runtime that goes on by itself after a failure has to give what the round gives without.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    drafts = group.drafts(1, k, 1)
    _require_undone(
        oracles,
        witness,
        lambda: group.prefilled(options),
        lambda session: session.round(drafts),
        what="a round",
        number=1,
    )


@case(
    "lifecycle.exceptions.in-a-turn",
    clause="exception-safety",
    needs=("continue", "state", "drafts"),
    oracle="the state before the turn; the same turn in which nothing failed",
    witness="evaluations that failed, after a round with a reject",
    faults=("L3",),
    since="0.1.0",
    cells=spread(models=("window", *LIFECYCLE_MODELS[::2]), not_by_default=LIFECYCLE_MODELS[::2]),
)
def test_in_a_turn(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A turn that fails at any evaluation leaves the end of the last, or a session that says no.

    The caches then take the same turn as if it had never been tried, and where the runtime samples
    the same token is drawn.
    """
    oracles.need(Capability.CONTINUE, Capability.STATE, Capability.DRAFTS)
    oracles.need_depth(2)
    group, options = oracles.group(cell), oracles.options(cell)
    if oracles.runtime.offers(Capability.SAMPLING):  # by numbers that hang on the place
        options = replace(options, temperature=1.0, seed=7)
    drafts = group.drafts(1, 2, 1)

    def make() -> CheckedSession:
        session = group.prefilled(options)
        accepted = session.round(drafts).accepted
        witness.add(drafted=2, accepted=accepted, rejected=2 - accepted)
        return session

    _require_undone(oracles, witness, make, lambda s: s.extend(TURN), what="a turn")
    witness.require(rejected=1)


def _require_undone(
    oracles: Oracles,
    witness: Witness,
    make: Callable[[], CheckedSession],
    call: Callable[[CheckedSession], Outcome],
    *,
    what: str,
    number: int | None = None,
) -> None:
    """Fail a call at each of its evaluations and demand the state before it, and then the call.

    Args:
        oracles: of the runtime.
        witness: counts failures, refusals and arrays compared.
        make: a session in which the call is due.
        call: what is made to fail.
        what: names it.
        number: of the round, in messages.

    Raises:
        AssertionError: another token was emitted.
        StateDiffers: names layer and component.
    """
    twin = make()
    before, due = twin.state(), call(twin)
    after = twin.state()
    for failed, session, done in each_failure(oracles, make, call):
        if done is None:
            try:
                left = session.state()
                done = call(session)  # noqa: PLW2901  (what is compared)
            except RuntimeFailure:
                fresh = call(make())
                said = f"{what} in which nothing failed, after evaluation {failed} did elsewhere"
                compared = require_tokens(fresh.tokens, due.tokens, what=said)
                witness.add(failed=1, refused=1, compared=compared)
                continue
            said = f"the state before {what} whose evaluation {failed} failed"
            witness.add(compared=require_equal(left, before, what=said, round=number))
        said = f"{what} in which nothing failed, not evaluation {failed}"
        compared = require_tokens(done.tokens, due.tokens, what=said)
        compared += require_equal(session.state(), after, what=said, round=number)
        witness.add(compared=compared, failed=1)
    witness.require(failed=1)


@case(
    "lifecycle.exceptions.in-a-prompt",
    clause="exception-safety",
    needs=("state",),
    oracle="a prefill in which nothing failed",
    witness="evaluations that failed",
    faults=("L4",),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS[1:4:2]),
)
def test_in_a_prompt(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A prefill that failed at any evaluation can be made again, or is refused from then on."""
    oracles.need(Capability.STATE)
    group, options = oracles.group(cell), oracles.options(cell)
    twin = group.open(options)
    due = twin.prefill(group.prompt)
    state = twin.state()
    for failed, session, done in each_failure(
        oracles, lambda: group.open(options), lambda session: session.prefill(group.prompt)
    ):
        if done is None:
            try:
                done = session.prefill(group.prompt)  # noqa: PLW2901  (what is compared)
            except RuntimeFailure:
                fresh = group.open(options).prefill(group.prompt)
                what = f"a prefill in which nothing failed, after evaluation {failed} did elsewhere"
                compared = require_tokens(fresh.tokens, due.tokens, what=what)
                witness.add(failed=1, refused=1, compared=compared)
                continue
        what = f"a prefill in which nothing failed, not evaluation {failed}"
        compared = require_tokens(done.tokens, due.tokens, what=what)
        compared += require_equal(session.state(), state, what=what)
        witness.add(compared=compared, failed=1)
    witness.require(failed=1)
