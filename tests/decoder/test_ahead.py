"""Plain steps that run one ahead of the tokens that are handed out."""

from collections.abc import Callable, Generator
from itertools import islice
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from mtp_conformance.exactness import require_equal
from mtp_decoder import DecoderError, Sampling, Session, StreakFallback, emit, make_prompt_cache
from mtp_decoder.experts import OffloadSettings, Shards, offload
from mtp_decoder.rules import Greedy
from mtp_decoder.state import arrays_of
from reference_models.checkpoint import read
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, VOCABULARY, Plain, PlantedError, fail, target_arrays
from tests.decoder.test_everything_evaluated import pending
from tests.decoder.test_phase_seconds import Clock

MODELS = ("gdn", "window", "qsa", "flash-next")


def _emitted(session: Session, **options: Any) -> Generator[int]:
    return (token for token, *_ in emit(session, PROMPT, num_draft_tokens=0, **options))


@pytest.mark.parametrize("taken", [1, 2, 7])
@pytest.mark.parametrize("name", MODELS)
def test_closed(zoo: Zoo, plain: Callable[..., Plain], name: str, taken: int) -> None:
    """Closed after any number of tokens, the caches hold all of these but the last."""
    run, (target, _) = plain(name), zoo(name)
    cache = make_prompt_cache(target)
    session = Session(target, prompt_cache=cache)
    emitted = emit(session, PROMPT, num_draft_tokens=0)
    assert [token for token, *_ in islice(emitted, taken)] == run.tokens(taken)
    emitted.close()
    state = Session(target, prompt_cache=cache).state()
    require_equal(target_arrays(state), run.state(taken), what="a run without drafts")
    assert (session.target_length, session.history) == (
        len(PROMPT) + taken - 1,
        [*PROMPT, *run.tokens(taken)],
    )


@pytest.mark.parametrize("max_tokens", [1, 2, 6])
def test_budget(zoo: Zoo, plain: Callable[..., Plain], max_tokens: int) -> None:
    """At the end of the budget nothing runs ahead, and the caches hold all but the last token."""
    run, session = plain("flash-next"), Session(zoo("flash-next")[0])
    assert list(_emitted(session, max_tokens=max_tokens)) == run.tokens(max_tokens)
    require_equal(target_arrays(session.state()), run.state(max_tokens), what="a plain run")


def test_stop(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """The step behind a token that ends it all is undone."""
    run, (target, _) = plain("flash-next"), zoo("flash-next")
    cache = make_prompt_cache(target)
    session = Session(target, prompt_cache=cache)
    stop = run.tokens(5)
    assert list(_emitted(session, stops=[stop[3:]]))[-2:] == stop[3:]
    length = session.target_length - len(PROMPT) + 1
    state = Session(target, prompt_cache=cache).state()
    require_equal(target_arrays(state), run.state(length), what="a plain run")


def test_no_step_too_many(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of n tokens takes n - 1 steps after the prompt."""
    target, _ = zoo("gdn")
    passes, embed = 0, target.embed

    def counted(tokens: mx.array) -> mx.array:
        nonlocal passes
        passes += tokens.shape[1] == 1
        return embed(tokens)

    monkeypatch.setattr(target, "embed", counted)
    list(_emitted(Session(target), max_tokens=6))
    assert passes == 1 + 5


def test_between_two_tokens(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """Whoever looks at the session, forks or goes on otherwise meets no step that runs ahead."""
    run, session = plain("flash-next"), Session(zoo("flash-next")[0])
    emitted = _emitted(session)
    first = list(islice(emitted, 3))
    require_equal(target_arrays(session.state()), run.state(3), what="a plain run")
    first.append(next(emitted))
    twin = session.fork()
    require_equal(target_arrays(twin.state()), run.state(4), what="a plain run")
    first += twin.round(0).tokens
    assert first == run.tokens(5)
    assert list(islice(emitted, 2)) == run.tokens(6)[4:]


def test_a_fork_keeps_its_tokens(zoo: Zoo) -> None:
    """A step adds its token to its own session's history, not to that of a fork."""
    session = Session(zoo("gdn")[0])
    session.prefill(PROMPT)
    twin = session.fork()
    before = list(twin.history)
    session.step(more=False)
    assert twin.history == before
    assert len(session.history) == len(before) + 1


def test_sampling_that_changes(zoo: Zoo) -> None:
    """Between two tokens a caller may choose otherwise; rounds go on where steps cannot."""
    session = Session(zoo("gdn")[0])
    emitted = _emitted(session, max_tokens=6)
    first = list(islice(emitted, 2))
    rejection = Sampling(temp=1.0, acceptance="rejection")
    session.decode_with(rewind="tape", head_rows="draft", sampling=rejection)
    assert [*PROMPT, *first, *emitted] == session.history


@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_tokens_of_rounds(zoo: Zoo, temp: float) -> None:
    """Sampled or greedy, steps give the tokens, logits and log-probabilities of rounds."""
    sampling = Sampling(temp=temp, seed=3)
    steps, rounds = (Session(zoo("gdn")[0], sampling=sampling) for _ in range(2))
    for session in (steps, rounds):
        session.prefill(PROMPT)
    for _ in range(5):
        step, plain = steps.step(more=True), rounds.round(0)
        assert (step.tokens, step.drafts, step.accepted) == (plain.tokens, (), 0)
        pairs = {"logits": step.logits, "logprobs": step.logprobs}
        beside = {"logits": plain.logits, "logprobs": plain.logprobs}
        require_equal(pairs, beside, what="a round without drafts")
    assert steps.counters.rounds == rounds.counters.rounds == 5


def test_time(zoo: Zoo) -> None:
    """A step is charged to `verify`, by the session's clock."""
    session = Session(zoo("gdn")[0])
    session.prefill(PROMPT)
    times = iter([10.0, 13.0, 20.0, 25.0])
    session.counters.clock = lambda: next(times)
    before = session.counters.seconds["verify"]
    session.step(more=True)
    session.step(more=False)
    assert session.counters.seconds["verify"] - before == 8


def test_work_begun_before(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of steps waits for earlier work once, uncharged, and for all of its own at its end."""
    session, clock = Session(zoo("gdn")[0]), Clock()
    session.prefill(PROMPT)
    session.counters.clock = clock
    monkeypatch.setattr(mx, "synchronize", clock.slow(mx.synchronize, 1))
    before, found = session.counters.seconds["verify"], list[tuple[float, float]]()
    for more in (True, True, False):
        session.step(more=more)
        found.append((clock.now, session.counters.seconds["verify"] - before))
    assert found == [(1, 0), (1, 0), (2, 1)]


def test_time_of_an_undo(zoo: Zoo) -> None:
    """A step that is undone is charged to `rewind`, and where there is none nothing is."""
    session = Session(zoo("gdn")[0])
    session.prefill(PROMPT)
    session.step(more=True)
    times = iter([10.0, 13.0])
    session.counters.clock = lambda: next(times)
    session.land()
    session.land()
    assert session.counters.seconds["rewind"] == 3


def test_time_of_a_failure(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails is charged all the same, and the way back to `rewind`."""
    target, _ = zoo("gdn")
    session = Session(target)
    session.prefill(PROMPT)
    times = iter([10.0, 14.0, 20.0, 21.0])
    session.counters.clock = lambda: next(times)
    monkeypatch.setattr(target, "logits", fail)
    with pytest.raises(PlantedError):
        session.step(more=True)
    assert (session.counters.seconds["verify"], session.counters.seconds["rewind"]) == (4, 1)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_step_that_fails(
    zoo: Zoo, plain: Callable[..., Plain], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Wherever a pass fails, caches are as of the tokens handed out, and the session goes on."""
    run, (target, _) = plain("flash-next"), zoo("flash-next")
    session = Session(target)
    session.prefill(PROMPT)
    whole, calls, taken = target.logits, 0, 1

    def failing(hidden: mx.array) -> mx.array:
        nonlocal calls
        calls += 1
        if calls == number:
            raise PlantedError
        return whole(hidden)

    with monkeypatch.context() as patch:
        patch.setattr(target, "logits", failing)
        with pytest.raises(PlantedError):
            for _ in range(4):
                session.step(more=True)
                taken += 1
    require_equal(target_arrays(session.state()), run.state(taken), what="a plain run")
    session.step(more=False)
    assert session.history == [*PROMPT, *run.tokens(taken + 1)]


def test_an_undo_that_fails(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the way back fails itself, the session refuses any further use."""
    session = Session(zoo("gdn")[0])
    session.prefill(PROMPT)
    session.step(more=True)
    monkeypatch.setattr("mtp_decoder.window.Window.abandon", fail)
    with pytest.raises(PlantedError):
        session.state()
    with pytest.raises(DecoderError, match="unusable"):
        session.step(more=False)


def test_who_runs_ahead(zoo: Zoo, checkpoint: Callable[..., Any]) -> None:
    """Not where a head goes along, somebody looks, rows are quantised, or experts are counted."""
    target, head = zoo("gdn")
    assert Session(target).can_run_ahead
    assert Session(target, sampling=Sampling(temp=1.0)).can_run_ahead
    wide, _ = zoo("gdn-wide")
    moe, _ = read(checkpoint("gdn-moe"))
    offload(moe, None, Shards(checkpoint("gdn-moe")), OffloadSettings(20000))
    others = [
        Session(target, head),
        Session(target, sampler=lambda p: mx.argmax(p, axis=-1)),
        Session(target, sampling=Sampling(temp=1.0, acceptance="rejection")),
        Session(target, logits_processors=[lambda tokens, logits: logits]),
        Session(wide, kv_bits=8, kv_group_size=32),
        Session(moe),
    ]
    assert [session.can_run_ahead for session in others] == [False] * 6


@pytest.mark.parametrize("policy", [StreakFallback(), None])
def test_a_policy_sees_rounds(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, policy: StreakFallback | None
) -> None:
    """A policy may learn what a plain round costs, and then there are rounds."""
    steps, whole = 0, Session.step

    def step(session: Session, **options: Any) -> Any:
        nonlocal steps
        steps += 1
        return whole(session, **options)

    monkeypatch.setattr(Session, "step", step)
    list(_emitted(Session(zoo("gdn")[0]), max_tokens=4, policy=policy))
    assert steps == (3 if policy is None else 0)


def test_refuses(zoo: Zoo) -> None:
    """A step is refused while a round is open, before a prompt, and where a token is looked at."""
    with pytest.raises(DecoderError, match="call prefill first"):
        Session(zoo("gdn")[0]).step(more=True)
    session = Session(zoo("gdn")[0], sampling=Sampling(temp=1.0, acceptance="rejection"))
    session.prefill(PROMPT)
    with pytest.raises(DecoderError, match="call round instead"):
        session.step(more=True)
    session = Session(*zoo("gdn"))
    session.prefill(PROMPT)
    with pytest.raises(DecoderError, match="call round instead"):
        session.step(more=True)
    session.draft(2)
    with pytest.raises(DecoderError, match="a round is open"):
        session.step(more=True)


def test_refuses_experts_on_disk(checkpoint: Callable[..., Any]) -> None:
    """So is one that would read experts for a token that may not be wanted."""
    target, _ = read(checkpoint("gdn-moe"))
    offload(target, None, Shards(checkpoint("gdn-moe")), OffloadSettings(20000))
    session = Session(target)
    session.prefill(PROMPT)
    with pytest.raises(DecoderError, match="call round instead"):
        session.step(more=False)


def test_the_given_cache(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A prompt cache without a head's rows is at the last token but one when generation ends."""
    target, _ = zoo("flash-next")
    cache = make_prompt_cache(target)
    session = Session(target, prompt_cache=cache)
    list(islice(_emitted(session), 4))
    session.land()
    state = Session(target, prompt_cache=cache).state()
    require_equal(target_arrays(state), plain("flash-next").state(4), what="a plain run")


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("name", MODELS)
def test_everything_is_computed_in_the_end(zoo: Zoo, name: str, steps: int) -> None:
    """After the last step, and after one that is undone, no array of a cache is pending."""
    for more in (False, True):
        cache = make_prompt_cache(zoo(name)[0])
        session = Session(zoo(name)[0], prompt_cache=cache)
        step = session.prefill(PROMPT)
        for left in reversed(range(steps)):
            step = session.step(more=more or left > 0)
        session.land()
        assert pending([*arrays_of(cache), step.logits, step.logprobs]) == 0


class Unread:
    """A layer whose state counts positions, and is read by nobody."""

    slots = ("count",)

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """Count."""
        before = mx.zeros((1, 1)) if cache[0] is None else cache[0]
        cache[0] = before + 1
        return x

    def record(self, x: mx.array, tokens: mx.array, cache: Any, states: Any = None) -> Any:
        """Count; nothing is taped."""
        return self(x, tokens, cache), {}

    def advance(self, x: mx.array, tokens: mx.array, cache: Any) -> None:
        """Count."""
        self(x, tokens, cache)

    advance_tape = advance


class OneLayer:
    """A target of that layer alone."""

    vocab_size = 4
    layers = (Unread(),)

    def make_cache(self) -> list[Any]:
        """Return its cache."""
        return [ArraysCache(size=1)]

    def embed(self, tokens: mx.array) -> mx.array:
        """Tokens as rows."""
        return (tokens[..., None] == mx.arange(4)).astype(mx.float32)

    def logits(self, hidden: mx.array) -> mx.array:
        """Rows as logits."""
        return hidden


def test_nothing_piles_up() -> None:
    """What no step reads is computed all the same, before much of it waits."""
    target = OneLayer()
    cache = target.make_cache()
    session = Session(target, prompt_cache=cache)
    session.prefill([1, 2, 3])
    counts = list[int]()
    for _ in range(100):
        session.step(more=True)
        counts.append(pending(arrays_of(cache)))
    session.land()
    assert max(counts) == 15 * 2  # two operations a step
    assert cache[0][0].item() == 2 + 100  # calls: two chunks of the prompt


def test_ties_go_to_the_lowest_id() -> None:
    """A row's token is told as it is judged."""
    logits = mx.zeros((2, VOCABULARY))
    assert Greedy().tell(logits, 5).tolist() == [0, 0]
