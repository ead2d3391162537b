"""Scripted rounds of one session, recorded, to hold another session's to.

The recording session is opened anew and never forked, saved or cancelled: what it does is what a
session does alone. Both make the same calls, so their bits are compared on every backend.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtp_conformance.case import Witness
from mtp_conformance.checked import CheckedSession
from mtp_conformance.exactness import require_equal
from mtp_conformance.group import Group, State
from mtp_conformance.protocol import Options, Outcome
from mtp_conformance.rounds import Script
from mtp_conformance.tokens import require_tokens


@dataclass(frozen=True)
class Recorded:
    """One round: its drafts, what it gave, and the state it left."""

    drafts: tuple[int, ...]
    outcome: Outcome
    state: State


def alone(group: Group, options: Options, script: Script) -> list[Recorded]:
    """Run a script in a session of its own, prompt first."""
    session = group.open(options)
    session.prefill(group.prompt)
    emitted, found = 1, list[Recorded]()
    for k, accepted in script:
        drafts = tuple(group.drafts(emitted, k, accepted))
        outcome = session.round(drafts)
        emitted += len(outcome.tokens)
        found.append(Recorded(drafts, outcome, session.state()))
    return found


def play(session: CheckedSession, rounds: list[Recorded]) -> None:
    """Make recorded rounds again, comparing nothing."""
    for recorded in rounds:
        session.round(recorded.drafts)


def require_recorded(
    session: CheckedSession, rounds: list[Recorded], witness: Witness, *, what: str, first: int = 1
) -> None:
    """Make recorded rounds again and demand their tokens, logits and states after each.

    Args:
        session: at the place where the recording begins.
        rounds: what is to come.
        witness: counts drafts by fate and arrays compared.
        what: names the expected side.
        first: number of the first round.

    Raises:
        AssertionError: another token was emitted.
        StateDiffers: names round, layer and component.
    """
    for number, recorded in enumerate(rounds, start=first):
        done, due = session.round(recorded.drafts), recorded.outcome
        compared = require_equal(session.state(), recorded.state, what=what, round=number)
        if done.logits is not None and due.logits is not None:
            compared += require_equal(
                {"logits": done.logits}, {"logits": due.logits}, what=what, round=number
            )
        compared += require_tokens(done.tokens, due.tokens, what=what, where=f"round {number}: ")
        k, accepted = len(recorded.drafts), done.accepted
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=compared)
