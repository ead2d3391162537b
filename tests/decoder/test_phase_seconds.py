"""Session: seconds, by a clock that stands still but for what is being timed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import Sampling, Session, emit
from mtp_decoder.counters import Counters
from mtp_decoder.experts import OffloadSettings, Shards, offload
from mtp_decoder.policy import Fixed, RoundCost
from mtp_decoder.quantised import KVQuantisation
from mtp_decoder.window import Window
from reference_models.checkpoint import read
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, VOCABULARY, Plain, PlantedError, play
from tests.decoder.test_everything_evaluated import pending


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


def test_earlier_work(session: Session, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """A phase waits for what was submitted before it, uncharged, and is charged for its own."""
    waits = clock.slow(mx.synchronize, 0.5)
    monkeypatch.setattr("mtp_decoder.counters.mx", SimpleNamespace(synchronize=waits))
    before = clock.now
    session.prefill(PROMPT)
    assert session.counters.seconds["prefill"] == 122 + 0.5
    assert clock.now - before == 122 + 2 * 0.5


def test_earlier_work_of_rounds(
    session: Session, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Every round waits once for what was submitted before it, and so does a phase by itself."""
    session.prefill(PROMPT)
    waits = clock.slow(mx.synchronize, 0.5)
    monkeypatch.setattr("mtp_decoder.counters.mx", SimpleNamespace(synchronize=waits))
    for call in (lambda: session.round(2), lambda: session.round(2), lambda: session.draft(2)):
        before, charged = clock.now, sum(session.counters.seconds.values())
        call()
        spent = sum(session.counters.seconds.values()) - charged
        assert clock.now - before - spent == 0.5


def test_what_follows_the_tokens(zoo: Zoo, clock: Clock) -> None:
    """Whatever a mask does with emitted tokens is charged to the phase that settles them."""
    target, head = zoo("gdn")

    class Slow:
        allowed = staticmethod(lambda: mx.ones(VOCABULARY, mx.bool_))
        advance = staticmethod(clock.slow(lambda _: None, 4))
        rewind = staticmethod(lambda _: None)

        def fork(self) -> Any:
            raise NotImplementedError

    session = Session(target, head, token_mask=Slow())
    session.prefill(PROMPT)
    assert session.counters.seconds["prefill"] == 4


def test_a_cancel(session: Session, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Giving a round up is charged to the rewind."""
    session.prefill(PROMPT)
    session.verify(session.draft(2))
    monkeypatch.setattr(Window, "rewind", clock.slow(Window.rewind, 3))
    session.cancel()
    assert session.counters.seconds["rewind"] == 3


def test_rows_that_are_quantised(zoo: Zoo, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantising rows between two rounds is charged to the draft that waits for it."""
    session = Session(*zoo("gdn-wide"), kv_bits=8, kv_group_size=32, quantized_kv_start=14)
    session.prefill(PROMPT)
    quantised = clock.slow(KVQuantisation.quantised, 7)
    monkeypatch.setattr(KVQuantisation, "quantised", quantised)
    session.round(0)
    before = dict(session.counters.seconds)
    session.round(0)
    spent = {name: s - before[name] for name, s in session.counters.seconds.items() if s}
    assert before["draft"] == 0  # 13 tokens in the caches
    assert spent == {"draft": 7 * 5}  # four layers and the head's


def test_drafts_from_elsewhere(zoo: Zoo, clock: Clock) -> None:
    """A draft source takes the time of drafting, and a policy is told what it takes."""
    told: list[float] = []

    class Watching(Fixed):
        def observe(self, cost: RoundCost) -> None:
            told.append(cost.draft_seconds)

    session, source = Session(zoo("gdn")[0]), clock.slow(lambda tokens, k: [1], 5)
    options: dict[str, Any] = {"draft_source": source, "policy": Watching()}
    list(emit(session, PROMPT, num_draft_tokens=2, max_tokens=4, **options))
    assert told == [5.0] * session.counters.rounds
    assert session.counters.seconds["draft"] == sum(told) > 0


@pytest.mark.parametrize(
    ("options", "on_disk", "waits"),
    [
        ({}, False, 3),
        ({"sampler": lambda p: mx.argmax(p, axis=-1)}, False, 4),
        ({"logits_processors": [lambda _, logits: logits]}, False, 5),
        ({}, True, 4),
    ],
)
def test_waits_of_a_round(
    checkpoint: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    on_disk: bool,
    waits: int,
) -> None:
    """A round waits before it, and after phases that did not wait themselves for all they did."""
    models = read(checkpoint("gdn-moe"))
    if on_disk:
        offload(*models, Shards(checkpoint("gdn-moe")), OffloadSettings(2_000_000))
    session = Session(*models, **options)
    session.prefill(PROMPT)
    calls, synchronize = 0, mx.synchronize

    def counted() -> None:
        nonlocal calls
        calls += 1
        synchronize()

    monkeypatch.setattr(mx, "synchronize", counted)
    session.round(2)
    assert calls == waits


def test_a_failure_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that wait for their own work have not, if they failed."""
    counters, calls = Counters(), 0

    def counted() -> None:
        nonlocal calls
        calls += 1

    monkeypatch.setattr(mx, "synchronize", counted)
    with counters.phase("accept", waited=True):
        pass
    with pytest.raises(PlantedError), counters.phase("accept", waited=True):
        raise PlantedError
    assert calls == 1 + 2


def test_judging_comes_with_the_pass(zoo: Zoo) -> None:
    """Where logits settle it, what drafts are judged by is there once the pass is; else nothing."""
    for temp in (0.0, 0.7):
        session = Session(*zoo("gdn"), sampling=Sampling(temp))
        session.prefill(PROMPT)
        told = session.verify(session.draft(2)).verdict
        assert told is not None
        assert pending([told.tokens, *told.logprobs]) == 0
        assert told.tokens[0].item() == session.accept().tokens[0]
    others: list[dict[str, Any]] = [
        {"sampler": lambda p: mx.argmax(p, axis=-1)},
        {"sampling": Sampling(temp=0.7, acceptance="rejection")},
        {"logits_processors": [lambda tokens, logits: logits]},
    ]
    for options in others:
        session = Session(*zoo("gdn"), **options)
        session.prefill(PROMPT)
        assert session.verify(session.draft(2)).verdict is None
