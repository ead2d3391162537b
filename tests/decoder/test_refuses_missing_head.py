"""Refused input: drafts asked of a model that has no head."""

import pytest

from mtp_decoder import DecoderError, Session, generate_step, make_prompt_cache
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, untouched

MESSAGE = "this model has no MTP head: load one, or decode with num_draft_tokens=0"


def test_generation_with_drafts_needs_a_head(zoo: Zoo) -> None:
    """Generation with drafts and no head is refused at the call."""
    target, _ = zoo("gdn")
    cache = make_prompt_cache(target)
    with untouched(cache), pytest.raises(DecoderError, match=MESSAGE):
        generate_step(PROMPT, target, num_draft_tokens=1, prompt_cache=cache)


@pytest.mark.parametrize("step", ["draft", "round"])
def test_drafting_needs_a_head(zoo: Zoo, step: str) -> None:
    """A session without a head cannot draft, and stays closed."""
    target, _ = zoo("gdn")
    cache = make_prompt_cache(target)
    session = Session(target, prompt_cache=cache)
    session.prefill(PROMPT)
    with untouched(cache), pytest.raises(DecoderError, match=MESSAGE):
        getattr(session, step)(1)
    assert len(session.round(0).tokens) == 1


def test_given_drafts_need_none(zoo: Zoo) -> None:
    """Drafts that are given are verified without a head."""
    session = Session(zoo("gdn")[0])
    first = session.prefill(PROMPT)
    assert session.round(drafts=[1, 2]).drafts == (1, 2)
    assert first.tokens == (session.history[len(PROMPT)],)
