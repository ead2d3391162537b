"""Running scripted rounds and comparing after each of them."""

from __future__ import annotations

from collections.abc import Sequence

from mtp_conformance.case import Cell, Witness
from mtp_conformance.exactness import require_equal
from mtp_conformance.oracles import Group
from mtp_conformance.protocol import Options, Outcome
from mtp_conformance.tokens import require_tokens


def run_rounds(
    group: Group, cell: Cell, script: Sequence[tuple[int, int]], witness: Witness
) -> None:
    """Run rounds of (K, accepted) and compare every state with the never-rejected run's.

    Raises:
        AssertionError: another token was emitted than K=0 emits.
        StateDiffers: names round, layer and component.
    """
    session = group.prefilled(Options(strategy=cell.strategy or "tape"))
    given: list[list[int]] = []
    emitted = 1
    for number, (k, accepted) in enumerate(script, start=1):
        drafts = group.drafts(emitted, k, accepted)
        outcome = session.round(drafts)
        due = group.stream(emitted + accepted + 1)[emitted:]
        require_emitted(outcome, due, round=number)
        emitted += accepted + 1
        given.append(drafts[:accepted])
        twin = group.never_rejected_state(given)
        what = f"the never-rejected run of {list(script)} as (K, accepted)"
        compared = require_equal(session.state(), twin, what=what, round=number)
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=compared)


def require_emitted(outcome: Outcome, expected: Sequence[int], *, round: int) -> None:
    """Demand that a round emitted what K=0 emits.

    Raises:
        AssertionError: names round, index and both tokens.
    """
    require_tokens(outcome.tokens, expected, what="K=0", where=f"round {round}: ")
