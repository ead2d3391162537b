"""Session: seconds, by a clock that stands still but for what is being timed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import Session
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, play


class Clock:
    """A clock that other functions move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def slow(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """Return the function, taking that long."""

        def call(*arguments: Any) -> Any:
            self.now += seconds
            return function(*arguments)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put a clock in place of the counters' own."""
    made = Clock()
    monkeypatch.setattr("mtp_decoder.counters.time", SimpleNamespace(perf_counter=made))
    return made


@pytest.fixture
def session(zoo: Zoo, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session whose target takes 1 s a pass, head 10, sampler 100 and rewind 1000."""
    target, head = zoo("gdn")
    monkeypatch.setattr(target, "embed", clock.slow(target.embed, 1))
    # The one part of a head pass that nothing else calls.
    monkeypatch.setattr(head, "_join", clock.slow(head._join, 10))  # pyright: ignore[reportPrivateUsage]
    layer: Any = target.layers[0]
    monkeypatch.setattr(layer, "advance_tape", clock.slow(layer.advance_tape, 1000))
    return Session(target, head, sampler=clock.slow(lambda p: mx.argmax(p, axis=-1), 100))


def test_a_prompt(session: Session) -> None:
    """A prompt is charged with two passes of the target, two of the head and one sample."""
    session.prefill(PROMPT)
    phases = {"prefill": 122.0, "draft": 0.0, "verify": 0.0, "accept": 0.0, "rewind": 0.0}
    assert session.counters.seconds == phases


def test_rounds(session: Session, plain: Callable[..., Plain]) -> None:
    """Every phase of a round is charged with its own work, and rounds add up."""
    session.prefill(PROMPT)
    for emitted in (1, 2):
        play(session, plain("gdn").tokens(5), emitted, 2, 0)
    phases = {"prefill": 122.0, "draft": 40.0, "verify": 2.0, "accept": 200.0, "rewind": 2000.0}
    assert session.counters.seconds == phases


def test_a_cut(session: Session, plain: Callable[..., Plain]) -> None:
    """A cut is charged to the rewind."""
    session.prefill(PROMPT)
    play(session, plain("gdn").tokens(5), 1, 2, 2)
    before = session.counters.seconds["rewind"]
    session.cut(1)
    assert session.counters.seconds["rewind"] == before + 1000


def test_a_failure(session: Session, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """A phase that fails is charged all the same."""

    def fail_late(hidden: mx.array) -> mx.array:
        clock.now += 7
        raise ZeroDivisionError

    session.prefill(PROMPT)
    # The target is what fails; a session has no public way to it.
    monkeypatch.setattr(session._target, "logits", fail_late)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ZeroDivisionError):
        session.round(1)
    assert session.counters.seconds["verify"] == 8
