"""Running scripted rounds and comparing after each of them."""

from __future__ import annotations

from collections.abc import Sequence

from mtp_conformance.case import Cell, Witness
from mtp_conformance.claims import require_round
from mtp_conformance.exactness import require_equal
from mtp_conformance.group import Group
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Options, Outcome
from mtp_conformance.tokens import require_tokens

Script = Sequence[tuple[int, int]]
"""Rounds as (K, accepted)."""


def run_rounds(oracles: Oracles, cell: Cell, script: Script, witness: Witness) -> None:
    """Run a script and hold the state claim after every round.

    Raises:
        AssertionError: another token was emitted than K=0 emits.
        StateDiffers: names round, layer and component.
    """
    group, options = oracles.group(cell), oracles.options(cell)
    deepest = max(k for k, _ in script)
    oracles.need_depth(deepest)
    try:
        _against_never_rejected(group, options, script, witness)
    except AssertionError as error:
        if oracles.condemns(group.key, (k for k, _ in script), error, options.strategy):
            raise
        require_other_tails(group, options, script, witness)


def _against_never_rejected(
    group: Group, options: Options, script: Script, witness: Witness
) -> None:
    session = group.prefilled(options)
    given: list[list[int]] = []
    emitted = 1
    for number, (k, accepted) in enumerate(script, start=1):
        drafts = group.drafts(emitted, k, accepted)
        outcome = session.round(drafts)
        due = group.stream(emitted + accepted + 1)[emitted:]
        emitted += accepted + 1
        given.append(drafts[:accepted])

        def state(number: int = number) -> int:
            twin = group.never_rejected_state(given)
            what = f"the never-rejected run of {list(script)} as (K, accepted)"
            return require_equal(session.state(), twin, what=what, round=number)

        compared = require_round(outcome, due, state, round=number)
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted, compared=compared)


def require_other_tails(
    group: Group, options: Options, script: Script, witness: Witness, *, every: int = 1
) -> None:
    """Without row-exact passes: the same shapes with other rejected drafts leave the same bits.

    Args:
        group: model and prompt.
        options: how both sessions decode.
        script: rounds.
        witness: counts what was drafted and compared.
        every: compare states after so many rounds each.

    Raises:
        AssertionError: the tokens of the two runs differ.
        StateDiffers: names round, layer and component.
    """
    sessions = [group.prefilled(options) for _ in range(2)]
    emitted = 1
    for number, (k, accepted) in enumerate(script, start=1):
        outcomes = [
            session.round(group.drafts(emitted, k, accepted, tail=tail))
            for tail, session in enumerate(sessions)
        ]
        if _guessed_right(*outcomes):
            break
        tokens = (outcome.tokens for outcome in outcomes)
        require_tokens(*tokens, what="a run with other rejected drafts", where=f"round {number}: ")
        kept = outcomes[0].accepted
        emitted += kept + 1
        witness.add(drafted=k, accepted=kept, rejected=k - kept)
        if number % every == 0:
            states = (session.state() for session in sessions)
            what = f"a run of {list(script[:8])} with other rejected drafts"
            witness.add(compared=require_equal(*states, what=what, round=number))


def _guessed_right(one: Outcome, other: Outcome) -> bool:
    """Whether a draft meant to be wrong was right in one of two runs.

    It can be once rounding has led both away from K=0's tokens, which say what is wrong. The runs
    then agree as far as the shorter one goes, and are of different shapes from here on.
    """
    shared = min(len(one.tokens), len(other.tokens))
    unlike = one.accepted != other.accepted
    return unlike and one.tokens[:shared] == other.tokens[:shared]
