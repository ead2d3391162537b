"""A policy at work in a session: what it is told, and that tokens do not depend on it."""

from collections.abc import Callable

import pytest

from mtp_decoder import DecoderError, RoundCost, Session, StreakFallback, emit, generate_step
from mtp_decoder.generate import DraftSource
from mtp_decoder.policy import Fixed, RateAware
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, Source


class Listening(Fixed):
    """Drafts as deep as it may, and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[RoundCost] = []
        self.begun = 0

    def begin(self) -> None:
        """Count requests."""
        self.begun += 1

    def observe(self, cost: RoundCost) -> None:
        """Remember."""
        self.told.append(cost)


class Always(Fixed):
    """One depth, whatever is possible."""

    def __init__(self, k: int) -> None:
        self._k = k

    def depth(self, most: int) -> int:
        """See the class."""
        return self._k


def test_told_of_every_round(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """By a clock that goes on one second a look, every phase took one second, a source another."""
    session, policy = Session(*zoo("gdn")), Listening()
    now = iter(range(1000))
    session.counters.clock = lambda: float(next(now))
    source = Source(plain("gdn").tokens(12), wrong=(2,))
    emitted = emit(
        session, PROMPT, num_draft_tokens=3, max_tokens=9, policy=policy, draft_source=source
    )
    list(emitted)
    assert policy.begun == 1
    assert policy.told == [
        RoundCost(3, 1, 2.0, 2.0, 1.0),
        RoundCost(3, 3, 2.0, 2.0, 1.0),
        RoundCost(1, 1, 2.0, 2.0, 1.0),
    ]


@pytest.mark.parametrize("policy", ["fixed", "streak", "rate", StreakFallback(1, 2), RateAware()])
def test_tokens_are_those_of_no_drafts(
    zoo: Zoo, plain: Callable[..., Plain], policy: str | StreakFallback | RateAware
) -> None:
    """Whatever depths a policy chooses, the tokens are the same."""
    stream = plain("gdn").tokens(40)
    source: DraftSource = Source(stream, wrong=range(4, 40, 3))
    emitted = generate_step(
        PROMPT,
        *zoo("gdn"),
        num_draft_tokens=4,
        max_tokens=40,
        depth_policy=policy,
        draft_source=source,
    )
    assert [token for token, *_ in emitted] == stream


def test_pauses_for_real(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A streak of failures is followed by plain rounds."""
    source = Source(plain("gdn").tokens(20), wrong=range(20))
    session = Session(*zoo("gdn"))
    policy = StreakFallback(streak=2, pause=3)
    emitted = emit(
        session, PROMPT, num_draft_tokens=2, max_tokens=12, policy=policy, draft_source=source
    )
    list(emitted)
    assert session.counters.drafted_by_depth == [4, 3]  # rounds 1, 2, 6, and 10 with one left


@pytest.mark.parametrize("k", [-1, 4])
def test_refuses_impossible_depths(zoo: Zoo, k: int) -> None:
    """A policy that wants more drafts than there may be is stopped."""
    emitted = generate_step(PROMPT, *zoo("gdn"), num_draft_tokens=3, depth_policy=Always(k))
    with pytest.raises(DecoderError, match=f"chose {k} drafts where 0 to 3 are possible"):
        list(emitted)


def test_refuses_unknown_names(zoo: Zoo) -> None:
    """The message lists the policies there are."""
    with pytest.raises(DecoderError, match="one of fixed, streak, rate, not 'clever'"):
        generate_step(PROMPT, *zoo("gdn"), depth_policy="clever")
