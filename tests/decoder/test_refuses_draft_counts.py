"""Refused input: how many drafts."""

from collections.abc import Callable

import pytest

from mtp_decoder import DecoderError, generate_step
from mtp_decoder.session import MAX_DRAFT_TOKENS
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import PROMPT, untouched

COUNTS = (-1, MAX_DRAFT_TOKENS + 1)


@pytest.mark.parametrize("k", COUNTS)
def test_generation_needs_a_possible_number(decoding: Callable[..., Decoding], k: int) -> None:
    """A number of drafts out of range is refused at the call, before a token is asked for."""
    _, cache, target, head = decoding("flash-next")
    with (
        untouched(cache),
        pytest.raises(DecoderError, match=rf"num_draft_tokens must be in 0\.\.64, not {k}"),
    ):
        generate_step(PROMPT, target, head, num_draft_tokens=k, prompt_cache=cache)


@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("step", ["draft", "round"])
def test_a_session_needs_a_possible_number(
    decoding: Callable[..., Decoding], step: str, k: int
) -> None:
    """A session refuses to draft a number of tokens out of range, and opens no round."""
    session, cache, *_ = decoding("flash-next")
    with (
        untouched(cache),
        pytest.raises(DecoderError, match=rf"num_draft_tokens must be in 0\.\.64, not {k}"),
    ):
        getattr(session, step)(k)
    assert len(session.round(2).drafts) == 2


@pytest.mark.parametrize("step", ["draft", "round"])
def test_a_number_that_is_not_whole(decoding: Callable[..., Decoding], step: str) -> None:
    """Half a draft is refused, and opens no round."""
    session, cache, *_ = decoding("flash-next")
    with (
        untouched(cache),
        pytest.raises(DecoderError, match="num_draft_tokens must be a whole number: 'float'"),
    ):
        getattr(session, step)(2.5)
    assert len(session.round(2).drafts) == 2


@pytest.mark.parametrize("step", ["inject", "verify"])
def test_too_many_given_drafts(decoding: Callable[..., Decoding], step: str) -> None:
    """More given drafts than a round may hold are refused."""
    session, cache, *_ = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match="at most 64 drafts a round, not 65"):
        getattr(session, step)([1] * 65)
