"""Refused input: token ids."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mtp_decoder import DecoderError, Session, generate_step
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import PROMPT, VOCABULARY, untouched

OUTSIDE = (-1, VOCABULARY)


@pytest.mark.parametrize("token", OUTSIDE)
@pytest.mark.parametrize("step", ["inject", "verify"])
def test_a_draft_outside_the_vocabulary(
    decoding: Callable[..., Decoding], step: str, token: int
) -> None:
    """A given draft outside the vocabulary is refused by its id."""
    session, cache, *_ = decoding("flash-next")
    with (
        untouched(cache),
        pytest.raises(DecoderError, match=rf"the drafts: token {token} .* vocabulary of 260"),
    ):
        getattr(session, step)([1, token])


@pytest.mark.parametrize("token", OUTSIDE)
def test_a_round_with_a_draft_outside_the_vocabulary(
    decoding: Callable[..., Decoding], token: int
) -> None:
    """A round with such a draft is refused, and the next one goes on as if it never came."""
    session, cache, *_ = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match=f"token {token} is outside"):
        session.round(drafts=[token])
    assert session.round(drafts=[1]).drafts == (1,)


@pytest.mark.parametrize("token", OUTSIDE)
def test_a_prompt_token_outside_the_vocabulary(
    decoding: Callable[..., Decoding], token: int
) -> None:
    """Generation refuses such a prompt at the call."""
    _, cache, target, head = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match=f"the prompt: token {token} is"):
        generate_step([*PROMPT, token], target, head, prompt_cache=cache)


@pytest.mark.parametrize("token", OUTSIDE)
def test_a_prefill_token_outside_the_vocabulary(
    decoding: Callable[..., Decoding], token: int
) -> None:
    """A session refuses such a prompt and can be given another one."""
    _, cache, target, head = decoding("flash-next")
    session = Session(target, head, prompt_cache=cache)
    with untouched(cache), pytest.raises(DecoderError, match=f"the prompt: token {token} is"):
        session.prefill([1, token])
    assert len(session.prefill([1]).tokens) == 1


@pytest.mark.parametrize("drafts", [[1.5], [[1, 2]], ["a"], 5, "ab"])
@pytest.mark.parametrize("step", ["inject", "verify"])
def test_drafts_that_are_no_tokens(
    decoding: Callable[..., Decoding], step: str, drafts: Any
) -> None:
    """Drafts that are no flat sequence of whole numbers are refused, and open no round."""
    session, cache, *_ = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match="the drafts must be "):
        getattr(session, step)(drafts)
    assert len(session.round(2).drafts) == 2


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("def f(x):", "must be token ids, not text: encode it with a tokenizer"),
        (b"def", "must be token ids, not text"),
        ([PROMPT], "must be a flat sequence of token ids: 'list'"),
        (mx.array([PROMPT]), "must be a flat sequence of token ids: 'list'"),
        (np.array([PROMPT]), "must be a flat sequence of token ids"),
        ([1.0, 2.0], "must be a flat sequence of token ids: 'float'"),
        (mx.array([1.0, 2.0]), "must be a flat sequence of token ids: 'float'"),
        (mx.array(3), "must be a flat sequence of token ids: 'int'"),
        (7, "must be a flat sequence of token ids: 'int'"),
        ("", "must be token ids, not text"),
    ],
)
def test_a_prompt_that_is_no_tokens(
    decoding: Callable[..., Decoding], prompt: Any, message: str
) -> None:
    """A prompt that is no flat sequence of whole numbers is refused at the call."""
    _, cache, target, head = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match=f"the prompt {message}"):
        generate_step(prompt, target, head, prompt_cache=cache)


def test_an_empty_prompt(decoding: Callable[..., Decoding]) -> None:
    """Generation refuses an empty prompt at the call."""
    _, cache, target, head = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match="the prompt is empty"):
        generate_step([], target, head, prompt_cache=cache)


def test_an_empty_prefill(decoding: Callable[..., Decoding]) -> None:
    """A session refuses an empty prompt."""
    _, cache, target, head = decoding("flash-next")
    session = Session(target, head, prompt_cache=cache)
    with untouched(cache), pytest.raises(DecoderError, match="the prompt is empty"):
        session.prefill([])
