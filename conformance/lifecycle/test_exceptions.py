"""Errors in the middle of a pass.

One evaluation of mlx after the other is made to fail, until a call goes through without.
"""

from collections.abc import Callable, Iterator

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
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.protocol import Outcome

MOST = 60
"""Evaluations of one call that are made to fail, in turn."""


@case(
    "lifecycle.exceptions.in-a-round",
    clause="exception-safety",
    needs=("state", "drafts"),
    oracle="the state before the round; the same round in which nothing failed",
    witness="evaluations that failed",
    faults=("L2", "L3"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS[::2], depths=(3,)),
)
def test_in_a_round(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A round that fails at any evaluation leaves the frontier, or a session that says no.

    A runtime that goes on by itself after a failure has to give what the round gives without.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    drafts = group.drafts(1, k, 1)
    twin = group.prefilled(options)
    before, due = twin.state(), twin.round(drafts)
    after = twin.state()
    for failed, session, done in _failing(
        oracles, lambda: group.prefilled(options), lambda session: session.round(drafts)
    ):
        if done is None:
            try:
                left = session.state()
                done = session.round(drafts)  # noqa: PLW2901  (what is compared)
            except RuntimeFailure:
                fresh = group.prefilled(options).round(drafts)
                what = f"a round in which nothing failed, after evaluation {failed} did elsewhere"
                compared = require_tokens(fresh.tokens, due.tokens, what=what)
                witness.add(failed=1, refused=1, compared=compared)
                continue
            what = f"the state before a round whose evaluation {failed} failed"
            witness.add(compared=require_equal(left, before, what=what, round=1))
        what = f"a round in which nothing failed, not evaluation {failed}"
        compared = require_tokens(done.tokens, due.tokens, what=what)
        compared += require_equal(session.state(), after, what=what, round=1)
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
    for failed, session, done in _failing(
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


def _failing(
    oracles: Oracles,
    make: Callable[[], CheckedSession],
    call: Callable[[CheckedSession], Outcome],
) -> Iterator[tuple[int, CheckedSession, Outcome | None]]:
    """Fail one evaluation of a call after the other, each in a session of its own.

    Yields:
        Number of the evaluation, the session, and what the call gave if it gave anything.
    """
    for number in range(1, MOST + 1):
        session, done = make(), None
        with oracles.runtime.failing(number) as raised:
            try:
                done = call(session)
            except RuntimeFailure:
                done = None
        if not raised[0]:
            return
        yield number, session, done
