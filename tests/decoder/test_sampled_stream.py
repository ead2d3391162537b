"""Sampling with exact-match acceptance: the tokens are those of K=0, to the bit."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal
from mtp_decoder import Sampling, Session, emit, generate_step, make_prompt_cache
from tests.decoder.chain_model import ChainHead, ChainTarget
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, STRATEGIES, Source
from tests.models.helpers import listed, number

COUNT = 16
MODELS = ("window", "ple", "flash-next", "gdn-mtp2")
HOT: dict[str, Any] = {"temp": 0.9, "top_p": 0.95, "top_k": 40, "min_p": 0.01, "seed": 3}


@pytest.fixture(scope="module")
def without(zoo: Zoo) -> Callable[..., list[int]]:
    """Return a function from a model and options to the tokens of K=0."""

    @cache
    def tokens(name: str, *options: tuple[str, Any]) -> list[int]:
        return _tokens(zoo, name, 0, **{**HOT, **dict(options)})

    return tokens


def _tokens(zoo: Zoo, name: str, k: int, **options: Any) -> list[int]:
    target, head = zoo(name)
    options = {"max_tokens": COUNT, **options}
    return [t for t, *_ in generate_step(PROMPT, target, head, num_draft_tokens=k, **options)]


def _session(zoo: Zoo, name: str, **options: Any) -> Session:
    session = Session(*zoo(name), sampling=Sampling(**HOT), **options)
    session.prefill(PROMPT)
    return session


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_drafts_right_and_wrong(
    zoo: Zoo, without: Callable[..., list[int]], name: str, strategy: str
) -> None:
    """Whatever K is and whichever drafts are wrong, the tokens are those of K=0."""
    expected = without(name)
    for k in (1, 2, 5, 8):
        source = Source(expected, wrong=(2, 3, 7, 12))
        tokens = _tokens(zoo, name, k, draft_source=source, rewind=strategy, **HOT)
        assert tokens == expected, k


@pytest.mark.parametrize("k", [1, 3])
def test_drafts_of_the_head(zoo: Zoo, k: int) -> None:
    """Drafts of the head change nothing, whether they stand or not."""
    options: dict[str, Any] = {**HOT, "temp": 0.5, "max_tokens": 40}
    target, head = zoo("gdn-agree")
    session = Session(target, head, sampling=replace(Sampling(**HOT), temp=0.5))
    emitted = [t for t, *_ in islice(emit(session, PROMPT, num_draft_tokens=k), 40)]
    assert emitted == _tokens(zoo, "gdn-agree", 0, **options)
    assert session.counters.accepted > 3
    assert session.counters.rejected > 3


@pytest.mark.parametrize("k", [0, 3])
def test_another_seed(zoo: Zoo, without: Callable[..., list[int]], k: int) -> None:
    """Another seed gives other tokens; the same one the same, early or late in the process."""
    assert _tokens(zoo, "ple", k, **{**HOT, "seed": 4}) != without("ple")
    assert _tokens(zoo, "ple", k, **HOT) == without("ple")


def test_not_the_likeliest(zoo: Zoo, without: Callable[..., list[int]]) -> None:
    """The tokens of these tests are sampled ones."""
    assert without("ple") != _tokens(zoo, "ple", 0)


def test_without_a_temperature(zoo: Zoo) -> None:
    """At temperature 0 the seed, the cuts and the way of accepting change nothing."""
    for k in (0, 3):
        greedy = _tokens(zoo, "ple", k)
        assert _tokens(zoo, "ple", k, **{**HOT, "temp": 0.0, "acceptance": "rejection"}) == greedy


@pytest.mark.parametrize("budget", range(1, COUNT))
def test_budgets(zoo: Zoo, without: Callable[..., list[int]], budget: int) -> None:
    """Wherever the budget falls in a block, and what is decoded after it, changes no token."""
    expected = without("flash-next")
    session = Session(*zoo("flash-next"), sampling=Sampling(**HOT))
    source = Source(expected, wrong=(5,))
    emitted = emit(session, PROMPT, num_draft_tokens=4, max_tokens=budget, draft_source=source)
    tokens = [token for token, *_ in emitted]
    while len(tokens) < COUNT:
        tokens += session.round(2).tokens
    assert tokens[:COUNT] == expected


@pytest.mark.parametrize("index", range(COUNT - 5))
def test_stops(zoo: Zoo, without: Callable[..., list[int]], index: int) -> None:
    """After a stop at any index of a block the session goes on with the tokens of K=0."""
    expected = without("ple")
    session = Session(*zoo("ple"), sampling=Sampling(**HOT))
    emitted = emit(
        session,
        PROMPT,
        num_draft_tokens=4,
        stops=[tuple(expected[index : index + 1])],
        draft_source=Source(expected),
    )
    tokens = [token for token, *_ in emitted]
    assert len(tokens) <= index + 1
    while len(tokens) < COUNT:
        tokens += session.round(3).tokens
    assert tokens[:COUNT] == expected


@pytest.mark.parametrize("taken", range(1, 8))
def test_a_consumer_that_leaves(zoo: Zoo, without: Callable[..., list[int]], taken: int) -> None:
    """A consumer that leaves inside a block leaves the rest of the tokens as they are."""
    expected = without("window")
    session = Session(*zoo("window"), sampling=Sampling(**HOT))
    emitted = emit(session, PROMPT, num_draft_tokens=5, draft_source=Source(expected))
    tokens = [token for token, *_ in islice(emitted, taken)]
    emitted.close()
    while len(tokens) < COUNT:
        tokens += session.round(1).tokens
    assert tokens[:COUNT] == expected


def test_changing_k_cancelling_and_forking(zoo: Zoo, without: Callable[..., list[int]]) -> None:
    """Neither a K that changes, nor cancelled rounds, nor forks change a token."""
    expected = without("flash-next")
    session = _session(zoo, "flash-next")
    tokens = [session.anchor]
    for k in (3, 0, 5, 1, 2, 4, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3):
        session.verify(session.draft(k))
        session.accept()
        session.cancel()
        session = session.fork()
        tokens += session.round(k).tokens
    assert tokens[:COUNT] == expected


@pytest.mark.parametrize("acceptance", ["match", "rejection"])
def test_accepting_twice(zoo: Zoo, acceptance: str) -> None:
    """Judging the same pass again gives the same tokens."""
    session = Session(*zoo("gdn-agree"), sampling=Sampling(temp=1.0, acceptance=acceptance))
    session.prefill(PROMPT)
    session.verify(session.draft(4))
    assert session.accept().tokens == session.accept().tokens


def test_a_prompt_cache(zoo: Zoo) -> None:
    """A warm start gives the tokens of a cold one: positions count from the sequence's start."""
    target, head = zoo("flash-next")
    cache = make_prompt_cache(target, head)
    Session(target, head, prompt_cache=cache).prefill(PROMPT[:7])
    warm = generate_step(PROMPT[7:], target, head, prompt_cache=cache, max_tokens=8, **HOT)
    assert [token for token, *_ in warm] == _tokens(zoo, "flash-next", 3, max_tokens=8, **HOT)


def test_log_probabilities(zoo: Zoo) -> None:
    """The log-probabilities handed out are the target's own, before temperature and cuts."""
    runs = [
        list(generate_step(PROMPT, *zoo("ple"), num_draft_tokens=k, max_tokens=6, **HOT))
        for k in (0, 3)
    ]
    for (_, alone, _), (_, beside, _) in zip(*runs, strict=True):
        assert bits_equal(alone, beside) is None
        assert abs(number(mx.exp(alone).sum()) - 1) < 1e-5


@pytest.mark.parametrize("acceptance", ["match", "rejection"])
def test_a_head_that_is_right(acceptance: str) -> None:
    """Where head and target have one law every draft stands: both draw with the same numbers."""
    logits = mx.random.normal((20, 20), key=mx.random.key(2)) * 2
    session = Session(
        ChainTarget(logits), ChainHead(logits), sampling=Sampling(temp=1.3, acceptance=acceptance)
    )
    session.prefill([4])
    for _ in range(10):
        assert session.round(4).accepted == 4


@pytest.mark.parametrize("k", [0, 1, 3])
def test_processors(zoo: Zoo, k: int) -> None:
    """Under a logits processor too the tokens are those of K=0, and it sees no wrong draft."""
    seen: list[list[int]] = []

    def penalty(tokens: mx.array, logits: mx.array) -> mx.array:
        seen.append(listed(tokens))
        return logits - 2.0 * (mx.arange(260) == tokens[-1])

    options: dict[str, Any] = {**HOT, "logits_processors": [penalty], "max_tokens": 9}
    expected = _tokens(zoo, "ple", 0, **options)
    seen.clear()
    source = Source(expected, wrong=(3, 4))
    assert _tokens(zoo, "ple", k, draft_source=source, **options) == expected
    assert seen == [[*PROMPT, *expected[:n]] for n in range(9)]
