"""A state machine over sessions: any order of rounds, forks, cancels, and what else is offered.

The model is a list of tokens: whatever happened, a session that has emitted n tokens has the
caches that K=0 has after n, in every bit, and in the end those of one forward pass over them.
Hypothesis makes the order up and shrinks a failing one to the shortest story that still fails.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mtp_conformance.case import Cell, Witness
from mtp_conformance.checked import CheckedSession
from mtp_conformance.claims import require_emitted
from mtp_conformance.exactness import StateDiffers, require_equal, same_state
from mtp_conformance.group import Group, State, target_arrays
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Capability, Options

T = TypeVar("T")

_LONGEST = 48
"""Emitted tokens after which a session takes no more rounds."""
_MOST_SESSIONS = 3
_EXTEND, _DIRECT = "extend by", "one forward pass"
EXAMPLES = Path(os.environ.get("MTP_CONFORMANCE_EXAMPLES", ".hypothesis/stories"))
"""Where profile `nightly` keeps failing stories, to be shared so that one replays anywhere."""


def search(profile: str, number: int = 0, cell: str = "") -> settings:
    """How long stories are looked for: seconds and always the same, or far and at random.

    A seed gives other stories than none, and always the same ones. Failing stories are kept apart
    by cell: a story that another cell passes would be dropped there.
    """
    far = profile == "nightly"
    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
    if profile == "peers":  # thirteen runtimes, some of which fail every story
        phases.remove(Phase.shrink)
    return settings(
        max_examples=100 if far else 8,
        stateful_step_count=40 if far else 10,
        derandomize=not far and not number,
        database=DirectoryBasedExampleDatabase(EXAMPLES / cell) if far else None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=phases,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def tell_stories(
    oracles: Oracles, cell: Cell, witness: Witness, profile: str, *, turns: bool = True
) -> None:
    """Run stories on a cell's model, data type, prompt and strategy.

    Args:
        oracles: where expected values come from.
        cell: model, data type, prompt and strategy.
        witness: counts what was drafted and compared.
        profile: how far to look.
        turns: whether stories have next turns, which are passes over prompt tokens.

    Raises:
        AssertionError: another token than K=0's was emitted, with the story in the message.
        StateDiffers: names layer and component, with the story in the message.
    """
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell)
    with tempfile.TemporaryDirectory() as folder:

        def machine() -> Story:
            file = Path(folder) / "saved"
            return Story(oracles, group, options, view, witness, file, turns=turns)

        if oracles.seed:
            machine = seed(oracles.seed)(machine)

        # It calls what it is given without arguments, and so takes more than classes.
        factory = cast("type[RuleBasedStateMachine]", machine)
        run_state_machine_as_test(factory, settings=search(profile, oracles.seed, cell.id))


class Story(RuleBasedStateMachine):
    """Sessions of one group; each is held to the tokens it has emitted."""

    def __init__(
        self,
        oracles: Oracles,
        group: Group,
        options: Options,
        view: Callable[[State], State],
        witness: Witness,
        file: Path,
        *,
        turns: bool = True,
    ) -> None:
        super().__init__()
        self._turns = turns and oracles.runtime.offers(Capability.CONTINUE)
        self._oracles, self._group, self._options, self._view = oracles, group, options, view
        self._witness, self._file = witness, file
        self._sessions: list[tuple[CheckedSession, int]] = []
        self._saved: int | None = None
        self._told: list[str] = []
        self._failed = self._rejected = False

    def _tell(self, what: str, at: int) -> None:
        self._told.append(f"[{at}] {what}" if len(self._sessions) > 1 else what)

    @initialize()
    def prefill(self) -> None:
        """The first session has seen the prompt."""
        self._sessions = [(self._group.prefilled(self._options), 1)]
        self._tell("prefill", 0)

    @rule(at=st.integers(0, _MOST_SESSIONS - 1), k=st.integers(1, 6), right=st.integers(0, 5))
    def reject(self, at: int, k: int, right: int) -> None:
        """Verify k drafts of which some are wrong."""
        k = min(k, self._oracles.description.max_draft_tokens)
        self._round(at, k, min(right, k - 1))

    @rule(at=st.integers(0, _MOST_SESSIONS - 1), k=st.integers(0, 6))
    def accept(self, at: int, k: int) -> None:
        """Verify k drafts, all of them right; none is a plain step."""
        k = min(k, self._oracles.description.max_draft_tokens)
        self._round(at, k, k)

    def _round(self, at: int, k: int, accepted: int) -> None:
        at %= len(self._sessions)
        session, emitted = self._sessions[at]
        if emitted > _LONGEST:
            return
        self._tell(f"round K={k} a={accepted}", at)
        drafts = self._group.drafts(emitted, k, accepted)
        outcome = self._ask(lambda: session.round(drafts))
        due = self._group.stream(emitted + accepted + 1)[emitted:]
        self._claim(lambda: require_emitted(outcome, due, round=len(self._told)))
        self._sessions[at] = session, emitted + accepted + 1
        self._rejected = self._rejected or accepted < k
        self._witness.add(drafted=k, accepted=accepted, rejected=k - accepted)

    @precondition(lambda self: len(self._sessions) < _MOST_SESSIONS)
    @rule(at=st.integers(0, _MOST_SESSIONS - 1), other=st.integers(0, 7))
    def fork(self, at: int, other: int) -> None:
        """A second session at the same place, rewinding in one of the runtime's ways."""
        at %= len(self._sessions)
        session, emitted = self._sessions[at]
        ways = self._oracles.description.strategies
        options = Options(ways[other % len(ways)], self._options.head_rows)
        self._sessions.append((self._ask(lambda: session.fork(options)), emitted))
        self._tell(f"fork {at} with {options.strategy}", len(self._sessions) - 1)

    @precondition(lambda self: self._oracles.runtime.offers(Capability.CANCEL))
    @rule(at=st.integers(0, _MOST_SESSIONS - 1), k=st.integers(0, 6))
    def cancel(self, at: int, k: int) -> None:
        """Give up a round after its verify pass, or nothing."""
        at %= len(self._sessions)
        session, emitted = self._sessions[at]
        if emitted > _LONGEST:
            return
        k = min(k, self._oracles.description.max_draft_tokens)
        self._tell(f"cancel K={k}" if k else "cancel", at)
        drafts = self._group.drafts(emitted, k, 0) if k else ()
        self._ask(lambda: session.cancel(drafts))

    @precondition(lambda self: self._turns)
    @rule(at=st.integers(0, _MOST_SESSIONS - 1), count=st.integers(1, 4))
    def extend(self, at: int, count: int) -> None:
        """A next turn, which says what would have been emitted: so K=0 is the same as before."""
        at %= len(self._sessions)
        session, emitted = self._sessions[at]
        if emitted > _LONGEST:
            return
        self._tell(f"{_EXTEND} {count}", at)
        stream = self._group.stream(emitted + count + 1)
        outcome = self._ask(lambda: session.extend(stream[emitted : emitted + count]))
        due = stream[emitted + count :]
        self._claim(lambda: require_emitted(outcome, due, round=len(self._told)))
        self._sessions[at] = session, emitted + count + 1

    @precondition(lambda self: self._oracles.runtime.offers(Capability.SAVE))
    @rule(at=st.integers(0, _MOST_SESSIONS - 1))
    def save(self, at: int) -> None:
        """Write a session to the one file."""
        at %= len(self._sessions)
        session, self._saved = self._sessions[at]
        self._tell("save", at)
        self._ask(lambda: session.save(self._file))

    @precondition(lambda self: self._saved is not None)
    @rule(at=st.integers(0, _MOST_SESSIONS - 1))
    def restore(self, at: int) -> None:
        """Take over what was saved, whatever happened since, in whichever session."""
        at %= len(self._sessions)
        session, saved = self._sessions[at][0], self._saved
        assert saved is not None
        self._tell("restore", at)
        self._ask(lambda: session.restore(self._file))
        self._sessions[at] = session, saved

    @invariant()
    def caches_are_those_of_the_tokens(self) -> None:
        """Every session has K=0's caches after its tokens: none moved another."""
        for at, (session, emitted) in enumerate(self._sessions):
            state = target_arrays(session.state())
            plain = target_arrays(self._group.plain_state(emitted - 1))
            what = f"K=0 after {emitted} tokens"
            self._claim(lambda s=state, p=plain, w=what: self._equal(s, p, w), at)

    def teardown(self) -> None:
        """In the end: one forward pass over all tokens, where prefills do not round otherwise.

        That is where the head is looked at as well, if its rows are made as a prefill makes them.
        A story in which nothing was rejected ends with a reject, so that each proves something.
        """
        if self._failed:
            return  # what is wrong was said already, and this would be said in its place
        if self._sessions and not self._rejected:
            self._round(0, 1, 0)
            self.caches_are_those_of_the_tokens()
        for at, (session, emitted) in enumerate(self._sessions):
            direct = self._group.direct_state(emitted - 1)
            plain = target_arrays(self._group.plain_state(emitted - 1))
            if same_state(target_arrays(direct), plain):
                pair = self._view(session.state()), self._view(direct)
                self._claim(lambda p=pair: self._equal(*p, _DIRECT), at)

    def _equal(self, state: State, expected: State, what: str) -> None:
        compared = require_equal(state, expected, what=what, round=len(self._told))
        self._witness.add(compared=compared)

    def _ask(self, call: Callable[[], T]) -> T:
        """Ask a session; one that does not answer is asked nothing more, nor judged in the end."""
        try:
            return call()
        except Exception:
            self._failed = True
            raise

    def _claim(self, claim: Callable[[], object], at: int | None = None) -> None:
        """Hold a claim; where it fails, put the story into the message."""
        try:
            claim()
        except AssertionError as error:
            self._failed = True
            where = f", session {at}" if at is not None and len(self._sessions) > 1 else ""
            raise _with_story(error, "; ".join(self._told) + where) from error


def told_of_a_prefill(error: AssertionError) -> bool:
    """Whether a failing story had passes over prompt tokens after its first, or ends with one."""
    return f"; {_EXTEND} " in str(error) or f"] {_EXTEND} " in str(error) or _DIRECT in str(error)


def _with_story(error: AssertionError, story: str) -> AssertionError:
    message = f"{error} (story: {story})"
    if not isinstance(error, StateDiffers):
        return AssertionError(message)
    return StateDiffers(
        message,
        layer=error.layer,
        component=error.component,
        round=error.round,
        difference=error.difference,
        differing=error.differing,
        rounding=error.rounding,
    )
