"""Drafting: the chain of the head, against the head run by hand."""

from collections.abc import Callable, Sequence

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Head, Target
from mtp_decoder.state import named_state
from mtp_decoder.window import forward
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import PROMPT, head_rows
from tests.models.helpers import listed

MODELS = ("gdn", "gdn-mtp2", "flash-next")
State = dict[str, mx.array]


def _by_hand(
    target: Target, head: Head, anchor: int, k: int, forced: Sequence[int] | None = None
) -> tuple[list[int], State]:
    """K drafts after the prompt and the anchor, and the head's state, made without a decoder."""
    caches = head.make_cache()
    hidden = forward(target, mx.array([PROMPT]), target.make_cache())
    head(hidden[:, :-1], mx.array([PROMPT[1:]]), caches)
    last, token, drafts = hidden[:, -1:], anchor, list[int]()
    for j in range(k):
        logits, last = head(last, mx.array([[token]]), caches)
        scores = listed(logits[0, -1])
        token = scores.index(max(scores)) if forced is None else forced[j]
        drafts.append(token)
    return drafts, named_state(head.layers, caches, "head")


@pytest.mark.parametrize("name", MODELS)
def test_the_drafts(decoding: Callable[..., Decoding], name: str) -> None:
    """Each draft is the head's likeliest token after its own last hidden and last draft."""
    session, _, target, head = decoding(name)
    expected, _ = _by_hand(target, head, session.anchor, 5)
    assert session.draft(5) == expected


@pytest.mark.parametrize("name", MODELS)
def test_the_rows(decoding: Callable[..., Decoding], name: str) -> None:
    """The head's rows of a chain are those of the head run over that chain."""
    session, _, target, head = decoding(name)
    _, expected = _by_hand(target, head, session.anchor, 5)
    session.draft(5)
    require_equal(head_rows(session.state()), expected, what="the head run by hand")


@pytest.mark.parametrize("name", MODELS)
def test_the_rows_of_given_drafts(decoding: Callable[..., Decoding], name: str) -> None:
    """With given drafts the head runs along as if it had made them."""
    session, _, target, head = decoding(name)
    given = [101, 256, 7, 97]
    _, expected = _by_hand(target, head, session.anchor, 4, given)
    assert session.inject(given) == given
    require_equal(head_rows(session.state()), expected, what="the head run by hand")
