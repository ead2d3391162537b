"""Prompt cache: a second call goes on where the first one stopped."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, emit, generate_step, make_prompt_cache
from mtp_decoder.state import named_state
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, Source

MODELS = ("gdn-mtp2", "window", "flash-next")


def _two_calls(
    zoo: Zoo, name: str, cache: list[Any], stream: Sequence[int], **options: Any
) -> list[int]:
    """Ten tokens in two calls, the second of which starts with the last emitted token."""
    target, head = zoo(name)
    source = Source(stream, wrong=(6,))
    options |= {"prompt_cache": cache, "max_tokens": 5}
    first = [t for t, *_ in generate_step(PROMPT, target, head, draft_source=source, **options)]

    def later(history: Sequence[int], k: int) -> list[int]:
        return source([*PROMPT, *first[:-1], *history], k)

    last = first[-1:]
    second = [t for t, *_ in generate_step(last, target, head, draft_source=later, **options)]
    return first + second


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_tokens(zoo: Zoo, plain: Callable[..., Plain], name: str, k: int) -> None:
    """Two calls emit what one uninterrupted run emits."""
    expected = plain(name).tokens(10)
    cache = make_prompt_cache(*zoo(name))
    assert _two_calls(zoo, name, cache, expected, num_draft_tokens=k) == expected


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_state(zoo: Zoo, plain: Callable[..., Plain], name: str, k: int) -> None:
    """Two calls leave target and head as one uninterrupted run without drafts leaves them.

    The head's rows come from the target's residuals here: with rows of the drafting chain
    they depend on where a round begins.
    """
    target, head = zoo(name)
    cache = make_prompt_cache(target, head)
    stream = plain(name).tokens(12)
    _two_calls(zoo, name, cache, stream, num_draft_tokens=k, head_rows="target")
    single = Session(target, head, head_rows="target")
    list(emit(single, PROMPT, num_draft_tokens=0, max_tokens=10))
    resumed = Session(target, head, prompt_cache=cache)
    require_equal(resumed.state(), single.state(), what="one uninterrupted run")


@pytest.mark.parametrize("taken", range(1, 6))
def test_after_a_close(zoo: Zoo, plain: Callable[..., Plain], taken: int) -> None:
    """A call goes on after one that was closed in the middle of a block."""
    run = plain("flash-next")
    target, head = zoo("flash-next")
    cache = make_prompt_cache(target, head)
    source = Source(run.tokens(12))
    tokens = generate_step(
        PROMPT, target, head, num_draft_tokens=4, prompt_cache=cache, draft_source=source
    )
    last = [token for token, *_ in islice(tokens, taken)][-1:]
    tokens.close()
    more = generate_step(last, target, head, max_tokens=4, prompt_cache=cache)
    assert [token for token, *_ in more] == run.tokens(taken + 4)[taken:]


@pytest.mark.parametrize("k", [0, 3])
def test_without_a_head(zoo: Zoo, plain: Callable[..., Plain], k: int) -> None:
    """A cache of the target alone can be gone on with, with given drafts too."""
    run = plain("window")
    target, _ = zoo("window")
    cache = make_prompt_cache(target)
    options: dict[str, Any] = {"num_draft_tokens": k, "prompt_cache": cache, "max_tokens": 5}
    source = Source(run.tokens(16))
    first = [t for t, *_ in generate_step(PROMPT, target, draft_source=source, **options)]
    list(generate_step(first[-1:], target, draft_source=lambda *_: [1, 2], **options))
    what = "one uninterrupted run"
    require_equal(named_state(target.layers, cache, "layers"), run.state(10), what=what)


@pytest.mark.parametrize("name", MODELS)
def test_more_prompt(zoo: Zoo, name: str) -> None:
    """A prompt in two parts leaves what the whole prompt leaves, in target and head."""
    target, head = zoo(name)
    cache = make_prompt_cache(target, head)
    Session(target, head, prompt_cache=cache).prefill(PROMPT[:6])
    parts = Session(target, head, prompt_cache=cache)
    parts.prefill(PROMPT[6:])
    whole = Session(target, head)
    whole.prefill(PROMPT)
    require_equal(parts.state(), whole.state(), what="the prompt in one part")
    assert parts.target_length == whole.target_length == len(PROMPT)


def test_a_cache_without_a_head(zoo: Zoo) -> None:
    """Without a head the prompt cache is the target's own list of caches."""
    target, head = zoo("window")
    assert [type(c) for c in make_prompt_cache(target)] == [type(c) for c in target.make_cache()]
    assert len(make_prompt_cache(target, head)) == len(make_prompt_cache(target)) + 2
