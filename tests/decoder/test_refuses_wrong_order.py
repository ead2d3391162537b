"""Refused input: steps of a session out of order."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_decoder import Acceptance, DecoderError, RewindError, Session
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import PROMPT, untouched

OPEN = "a round is open: settle it with rewind, or cancel it"


def _acceptance(accepted: int) -> Acceptance:
    return Acceptance(accepted, (1,) * (accepted + 1), mx.zeros((accepted + 1, 260)))


def test_a_second_prefill(decoding: Callable[..., Decoding]) -> None:
    """A session is prefilled once."""
    session, cache, *_ = decoding("window")
    with untouched(cache), pytest.raises(DecoderError, match="prefilled already; start another"):
        session.prefill(PROMPT)


@pytest.mark.parametrize("step", ["draft", "round"])
def test_a_round_before_the_prompt(zoo: Zoo, step: str) -> None:
    """Nothing can be drafted before a prompt was run."""
    with pytest.raises(DecoderError, match="nothing was decoded yet: call prefill first"):
        getattr(Session(*zoo("window")), step)(1)


def test_accepting_before_verifying(decoding: Callable[..., Decoding]) -> None:
    """Nothing can be accepted before it was verified."""
    session, cache, *_ = decoding("window")
    with untouched(cache), pytest.raises(DecoderError, match="nothing was verified yet"):
        session.accept()


@pytest.mark.parametrize("step", ["draft", "round"])
def test_drafting_in_an_open_round(decoding: Callable[..., Decoding], step: str) -> None:
    """Drafting while a round is open is refused and leaves that round open."""
    session, cache, *_ = decoding("window")
    drafts = session.draft(2)
    with untouched(cache), pytest.raises(DecoderError, match=OPEN):
        getattr(session, step)(2)
    assert session.verify(drafts).drafts == tuple(drafts)


def test_injecting_in_an_open_round(decoding: Callable[..., Decoding]) -> None:
    """Injecting while a round is open is refused."""
    session, cache, *_ = decoding("window")
    session.draft(2)
    with untouched(cache), pytest.raises(DecoderError, match=OPEN):
        session.inject([1])


def test_verifying_other_drafts(decoding: Callable[..., Decoding]) -> None:
    """Other drafts than this round's are not verified."""
    session, cache, *_ = decoding("window")
    session.inject([1, 2])
    with (
        untouched(cache),
        pytest.raises(DecoderError, match=r"drafts are \[1, 2\], not \[1, 3\]"),
    ):
        session.verify([1, 3])


def test_verifying_twice(decoding: Callable[..., Decoding]) -> None:
    """A round is verified once."""
    session, cache, *_ = decoding("window")
    session.verify([1, 2])
    with untouched(cache), pytest.raises(DecoderError):
        session.verify([1, 2])


@pytest.mark.parametrize("verified", [False, True])
def test_forking_an_open_round(decoding: Callable[..., Decoding], verified: bool) -> None:
    """A session with an open round cannot be forked."""
    session, cache, *_ = decoding("window")
    drafts = session.draft(2)
    if verified:
        session.verify(drafts)
    with untouched(cache), pytest.raises(DecoderError, match=OPEN):
        session.fork()


def test_another_strategy_in_an_open_round(decoding: Callable[..., Decoding]) -> None:
    """The strategy is not changed in the middle of a round."""
    session, cache, *_ = decoding("window")
    session.draft(2)
    with untouched(cache), pytest.raises(DecoderError, match=OPEN):
        session.decode_with(rewind="replay", head_rows="draft")


def test_rewinding_beyond_the_round(decoding: Callable[..., Decoding]) -> None:
    """More accepted drafts than were verified are refused, with both numbers."""
    session, cache, *_ = decoding("window")
    session.verify([1, 2])
    with (
        untouched(cache),
        pytest.raises(RewindError, match="rewind to 3 accepted drafts: the round holds 2"),
    ):
        session.rewind(_acceptance(3))


def test_rewinding_to_more_than_the_last_time(decoding: Callable[..., Decoding]) -> None:
    """Positions that a rewind gave up do not come back."""
    session, cache, *_ = decoding("window")
    session.verify([1, 2, 3])
    session.rewind(_acceptance(1))
    with untouched(cache), pytest.raises(RewindError, match=r"2 accepted drafts: .* holds 1"):
        session.rewind(_acceptance(2))


def test_rewinding_to_fewer_than_none(decoding: Callable[..., Decoding]) -> None:
    """Fewer than no accepted drafts are refused: the anchor of a settled round stays."""
    session, cache, *_ = decoding("window")
    session.verify([1, 2])
    with untouched(cache), pytest.raises(RewindError, match="-1"):
        session.rewind(Acceptance(-1, (), mx.zeros((0, 260))))


def test_rewinding_with_tokens_left_out(decoding: Callable[..., Decoding]) -> None:
    """An outcome has one token more than accepted drafts."""
    session, cache, *_ = decoding("window")
    session.verify([1, 2])
    with untouched(cache), pytest.raises(RewindError):
        session.rewind(Acceptance(1, (1,), mx.zeros((1, 260))))


@pytest.mark.parametrize("emitted", [-1, 0, 2])
def test_cutting_to_what_was_not_emitted(decoding: Callable[..., Decoding], emitted: int) -> None:
    """A settled round keeps at least one of its tokens, and has no more than it emitted."""
    session, cache, *_ = decoding("window")
    wrong = (session.fork().round().tokens[0] + 1) % 256
    session.round(drafts=[wrong])
    with (
        untouched(cache),
        pytest.raises(RewindError, match=f"cannot cut the last round to {emitted} emitted"),
    ):
        session.cut(emitted)


def test_cutting_the_prompt(decoding: Callable[..., Decoding]) -> None:
    """The token a prefill emitted cannot be cut."""
    session, cache, *_ = decoding("window")
    with untouched(cache), pytest.raises(RewindError, match="cannot cut"):
        session.cut(1)
