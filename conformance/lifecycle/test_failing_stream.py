"""Errors in the middle of a stream: where the caches are left."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import (
    Capability,
    Cell,
    Inconclusive,
    Oracles,
    Witness,
    case,
    require_tokens,
    same_state,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.exactness import StateDiffers, require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.grid import spread
from mtp_conformance.group import State, target_arrays

LENGTH, MOST, STEP, PLAIN_STEP = 9, 80, 4, 3
"""Tokens of a stream; evaluations that are made to fail, every fourth of them; without drafts, as
a step takes two, every third."""
_SPREAD = spread(models=("window", "gdn+mlx-lm"), depths=(2,))


def _cells(profile: str) -> Sequence[Cell]:
    """The grid, and for one model the same without drafts."""
    cells = _SPREAD(profile)
    return [*cells, *(replace(cell, k=0) for cell in cells if cell.model == "window")]


@case(
    "lifecycle.exceptions.in-a-stream",
    clause="exception-safety",
    needs=("stream", "guess", "state"),
    oracle="the states of K=0 after every number of tokens",
    witness="evaluations that failed; where a session said no, one in which nothing did",
    faults=("L3", "L4"),
    since="0.1.0",
    cells=_cells,
)
def test_in_a_stream(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A stream that fails at any evaluation leaves caches that some committed prefix has.

    Or a session that says no. Half of the drafts are wrong, so that a round that fails has
    something to take back. Without drafts a step may have been ahead of the tokens that were handed
    out: the next one shows whether the session knows where its caches are.
    """
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.STATE)
    group, k = oracles.group(cell), cell.k or 0
    if not k:
        oracles.need(Capability.DRAFTS)
    options, view = oracles.prefill_like(cell) if k else (oracles.options(cell), target_arrays)
    stream = group.stream(LENGTH + 1)
    guess = [(t + 1) % 256 if i % 3 == 2 else t for i, t in enumerate(stream)]
    with oracles.bits_against_prefill(group, k):
        due = [view(group.direct_state(rounds)) for rounds in range(LENGTH)]

        def decode(session: CheckedSession) -> tuple[int, ...]:
            made = session.generate(
                group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess if k else None
            )
            return made.tokens[:LENGTH]

        refused = 0
        for number in range(1, MOST, STEP if k else PLAIN_STEP):
            session = group.open(options)
            with oracles.runtime.failing(number) as raised, contextlib.suppress(RuntimeFailure):
                decode(session)
            if not raised[0]:
                break
            try:
                left = session.state()
            except RuntimeFailure:
                refused += 1
                continue
            if not any(name.endswith((".keys", ".recurrent")) for name in left):
                continue  # the prompt failed, and nothing is in the caches
            at = [n for n, state in enumerate(due) if same_state(view(left), state)]
            if not at:
                _say_how_far(view(left), due, number)
            if not k:
                what = "K=0 after the tokens that are in the caches"
                following = session.round(()).tokens
                require_tokens(following, stream[at[0] + 1 : at[0] + 2], what=what)
            witness.add(failed=1, compared=len(left))
        if refused:
            session = group.open(options)
            what = "K=0, in a session in which nothing failed after others that did"
            compared = require_tokens(decode(session), stream[:LENGTH], what=what)
            _require_shown(session)
            witness.add(failed=refused, refused=refused, compared=compared)
    witness.require(failed=1)


def _require_shown(session: CheckedSession) -> None:
    """A session that shows no caches after any stream says nothing of one that failed.

    Raises:
        Inconclusive: this is such a session.
    """
    try:
        session.state()
    except RuntimeFailure as error:
        raise Inconclusive("its caches are not shown after a stream, failed or not") from error


def _say_how_far(left: State, due: list[State], number: int) -> None:
    """Name what differs from the prefix that shares most with the state.

    Raises:
        StateDiffers: names layer and component.
    """
    found: list[StateDiffers] = []
    for rounds, state in enumerate(due):
        try:
            require_equal(
                left, state, what=f"K=0 after {rounds} rounds (evaluation {number} had failed)"
            )
        except StateDiffers as error:
            found.append(error)
    raise min(found, key=lambda error: len(error.differing))
