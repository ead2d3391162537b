"""Generation: the budget."""

from collections.abc import Callable

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, emit, generate_step, make_prompt_cache
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, Source, frozen, target_arrays


@pytest.mark.parametrize("max_tokens", range(1, 8))
@pytest.mark.parametrize("k", [0, 3])
def test_as_many_as_asked_for(
    zoo: Zoo, plain: Callable[..., Plain], k: int, max_tokens: int
) -> None:
    """Exactly `max_tokens` tokens come, with right drafts as without."""
    source = Source(plain("gdn").tokens(16))
    target, head = zoo("gdn")
    emitted = generate_step(
        PROMPT, target, head, num_draft_tokens=k, max_tokens=max_tokens, draft_source=source
    )
    assert [token for token, *_ in emitted] == plain("gdn").tokens(max_tokens)


@pytest.mark.parametrize(
    ("max_tokens", "asked"),
    [(1, []), (2, [0]), (3, [1]), (5, [3]), (6, [4]), (7, [4, 0]), (9, [4, 2]), (11, [4, 4])],
)
def test_no_draft_beyond_it(
    zoo: Zoo, plain: Callable[..., Plain], max_tokens: int, asked: list[int]
) -> None:
    """A round drafts at most as many tokens as the budget holds beside its own one."""
    source = Source(plain("gdn").tokens(16))
    target, head = zoo("gdn")
    list(
        generate_step(
            PROMPT, target, head, num_draft_tokens=4, max_tokens=max_tokens, draft_source=source
        )
    )
    assert source.asked == asked


@pytest.mark.parametrize("max_tokens", [2, 3, 4, 5, 9])
def test_the_head_keeps_to_it(zoo: Zoo, max_tokens: int) -> None:
    """The head drafts no more than the budget holds either."""
    session = Session(*zoo("gdn"))
    list(emit(session, PROMPT, num_draft_tokens=4, max_tokens=max_tokens))
    assert len(session.counters.drafted_by_depth) == min(4, max_tokens - 2)


def test_none(zoo: Zoo) -> None:
    """With a budget of 0 nothing comes, and the cache is not touched."""
    target, head = zoo("gdn")
    cache = make_prompt_cache(target, head)
    before = frozen(cache)
    assert list(generate_step(PROMPT, target, head, max_tokens=0, prompt_cache=cache)) == []
    require_equal(frozen(cache), before, what="the cache before the call")


def test_unlimited(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """With a budget of -1 tokens come until a stop, with K drafts in every round."""
    stream = plain("ple").tokens(13)
    source = Source(plain("ple").tokens(20))
    target, head = zoo("ple")
    emitted = generate_step(
        PROMPT, target, head, max_tokens=-1, draft_source=source, stop_sequences=[stream[-2:]]
    )
    assert [token for token, *_ in emitted] == stream
    assert source.asked == [3, 3, 3]


@pytest.mark.parametrize("max_tokens", range(1, 10))
def test_the_frontier(zoo: Zoo, plain: Callable[..., Plain], max_tokens: int) -> None:
    """Where the budget ends, the caches hold every emitted token but the last."""
    run = plain("flash-next")
    session = Session(*zoo("flash-next"))
    source = Source(run.tokens(16), wrong=(5,))
    list(emit(session, PROMPT, num_draft_tokens=3, max_tokens=max_tokens, draft_source=source))
    require_equal(
        target_arrays(session.state()), run.state(max_tokens), what="a run without drafts"
    )
