"""Session: the next turn on the same caches."""

from collections.abc import Callable

import pytest

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import DecoderError, RewindError, Session
from reference_models.prompts import prompt_tokens
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import PROMPT, Plain, play, untouched

MODELS = ("attn", "gdn-mtp2", "window", "ple", "qsa", "flash-next")
TURN = prompt_tokens(30)[13:]


@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("name", MODELS)
def test_as_a_cold_run(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], name: str, size: int
) -> None:
    """After rounds with rejects the next turn leaves what one prefill of everything leaves.

    The head's rows are made from the target's residuals here, as a prefill makes them.
    """
    session, _, target, head = decoding(name, head_rows="target", prefill_step_size=4)
    play(session, plain(name).tokens(9), 1, 3, 1)
    play(session, plain(name).tokens(9), 3, 2, 2)
    whole = [*session.history, *TURN[:size]]
    done = session.extend(TURN[:size])
    cold = Session(target, head, head_rows="target")
    due = cold.prefill(whole)
    assert done.tokens == due.tokens
    assert bits_equal(done.logits, due.logits) is None
    require_equal(session.state(), cold.state(), what="a cold run")
    assert (session.history, session.target_length) == (cold.history, len(whole))
    assert session.round(3).tokens == cold.round(3).tokens
    require_equal(session.state(), cold.state(), what="a cold run, a round later")


def test_the_round_before_is_settled_for_good(decoding: Callable[..., Decoding]) -> None:
    """Once a turn has followed a round, the round cannot be cut or rewound any more."""
    session, cache, *_ = decoding("flash-next")
    session.verify(session.draft(3))
    outcome = session.accept()
    session.rewind(outcome)
    session.extend(TURN)
    with untouched(cache), pytest.raises(RewindError, match="cannot cut the last round"):
        session.cut(1)
    with untouched(cache), pytest.raises(DecoderError, match="nothing was verified"):
        session.rewind(outcome)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([], "nothing to go on with"), ([260], "outside the vocabulary"), ("text", "not text")],
)
def test_bad_tokens(decoding: Callable[..., Decoding], tokens: list[int], message: str) -> None:
    """A turn without a token, or with one there is none of, is refused."""
    session, cache, *_ = decoding("gdn")
    with untouched(cache), pytest.raises(DecoderError, match=message):
        session.extend(tokens)


def test_before_a_prompt(decoding: Callable[..., Decoding]) -> None:
    """A turn needs a prompt before it."""
    made = decoding("gdn")
    with pytest.raises(DecoderError, match="call prefill first"):
        Session(made.target, made.head).extend(PROMPT)


def test_amid_a_round(decoding: Callable[..., Decoding]) -> None:
    """A turn waits for the round to be settled."""
    session, cache, *_ = decoding("gdn")
    session.draft(2)
    with untouched(cache), pytest.raises(DecoderError, match="a round is open"):
        session.extend(TURN)
