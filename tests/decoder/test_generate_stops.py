"""Generation: end of text and stop sequences."""

from collections.abc import Callable, Sequence

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, Stops, emit, generate_step, make_prompt_cache
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, Source, head_lengths, target_arrays

PLACES = range(10)  # prefill, then rounds of four drafts and a bonus: every place in a round


@pytest.mark.parametrize("place", PLACES)
def test_end_of_text(zoo: Zoo, plain: Callable[..., Plain], place: int) -> None:
    """Generation ends with an end-of-text token at any place of an accepted block."""
    stream = plain("ple").tokens(16)
    target, head = zoo("ple")
    emitted = generate_step(
        PROMPT,
        target,
        head,
        num_draft_tokens=4,
        eos_token_ids=[259, stream[place]],
        draft_source=Source(stream),
    )
    assert [token for token, *_ in emitted] == stream[: stream.index(stream[place]) + 1]


@pytest.mark.parametrize(("place", "length"), [(p, 2 + p % 2) for p in PLACES])
def test_a_stop_sequence(zoo: Zoo, plain: Callable[..., Plain], place: int, length: int) -> None:
    """Generation ends with a stop sequence, across rounds too, once all of it was emitted."""
    stream = plain("ple").tokens(16)
    target, head = zoo("ple")
    emitted = generate_step(
        PROMPT,
        target,
        head,
        num_draft_tokens=4,
        max_tokens=16,
        stop_sequences=[[259, 259], stream[place : place + length]],
        draft_source=Source(stream),
    )
    assert [token for token, *_ in emitted] == stream[: place + length]


@pytest.mark.parametrize("place", PLACES)
def test_the_frontier(zoo: Zoo, plain: Callable[..., Plain], place: int) -> None:
    """Where a stop ends generation, the caches hold every emitted token but the last."""
    run = plain("flash-next")
    session = Session(*zoo("flash-next"))
    stops = [(run.tokens(16)[place],)]
    source = Source(run.tokens(16))
    emitted = list(emit(session, PROMPT, num_draft_tokens=4, stops=stops, draft_source=source))
    what = "a run without drafts that ends there"
    require_equal(target_arrays(session.state()), run.state(len(emitted)), what=what)


def test_a_stop_in_the_prompt(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """Prompt tokens belong to no stop sequence."""
    stream = plain("ple").tokens(4)
    target, head = zoo("ple")
    stop = [PROMPT[-1], stream[0]]
    emitted = generate_step(PROMPT, target, head, max_tokens=4, stop_sequences=[stop])
    assert [token for token, *_ in emitted] == stream


def test_a_stop_in_rejected_drafts(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A rejected draft ends nothing."""
    stream = plain("ple").tokens(6)
    target, head = zoo("ple")
    wrong = (stream[2] + 1) % 256
    source = Source(stream, wrong=(2,))
    emitted = generate_step(
        PROMPT, target, head, max_tokens=6, eos_token_ids=[wrong], draft_source=source
    )
    assert [token for token, *_ in emitted] == stream


@pytest.mark.parametrize("place", PLACES)
def test_the_head_follows(zoo: Zoo, plain: Callable[..., Plain], place: int) -> None:
    """A stop at any place leaves every layer of the head one pair short of the target."""
    stream = plain("gdn-mtp2").tokens(16)
    target, head = zoo("gdn-mtp2")
    cache = make_prompt_cache(target, head)
    emitted = generate_step(
        PROMPT,
        target,
        head,
        num_draft_tokens=4,
        prompt_cache=cache,
        eos_token_ids=[stream[place]],
        draft_source=Source(stream),
    )
    pairs = len(PROMPT) + len(list(emitted)) - 2
    assert head_lengths(cache, target, head) == [pairs, pairs]


class AfterThree(Stops):
    """Ends after three tokens, whatever they are."""

    def until(self, tail: Sequence[int], new: int, done: int) -> int:
        """See the class."""
        del tail
        count = min(new, 3 - done)
        self.ended_after = 3 if done + count == 3 else None
        return count


@pytest.mark.parametrize("k", [0, 2])
def test_stops_of_a_caller(zoo: Zoo, plain: Callable[..., Plain], k: int) -> None:
    """Stops that look for nothing in a list are asked all the same."""
    stream, session = plain("gdn").tokens(8), Session(*zoo("gdn"))
    emitted = emit(session, PROMPT, num_draft_tokens=k, max_tokens=8, stops=AfterThree())
    assert [token for token, *_ in emitted] == stream[:3]
