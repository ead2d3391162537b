"""Generation: a consumer that stops listening."""

from collections.abc import Callable
from itertools import islice

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import DecoderError, Session, emit
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import (
    PROMPT,
    STRATEGIES,
    Plain,
    PlantedError,
    Source,
    fail,
    target_arrays,
)

MODELS = ("window", "qsa", "flash-next")


@pytest.mark.parametrize("taken", range(1, 8))  # prompt, a full block, a broken one
@pytest.mark.parametrize("name", MODELS)
def test_after_any_number(zoo: Zoo, plain: Callable[..., Plain], name: str, taken: int) -> None:
    """Closed after any number of tokens, the caches hold all of these but the last."""
    run = plain(name)
    session = Session(*zoo(name))
    source = Source(run.tokens(20), wrong=(5,))
    tokens = emit(session, PROMPT, num_draft_tokens=3, draft_source=source)
    list(islice(tokens, taken))
    tokens.close()
    require_equal(target_arrays(session.state()), run.state(taken), what="a run without drafts")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_by_every_strategy(zoo: Zoo, plain: Callable[..., Plain], strategy: str) -> None:
    """The same holds of every strategy, in the middle of an accepted block."""
    run = plain("flash-next")
    session = Session(*zoo("flash-next"), rewind=strategy)
    tokens = emit(session, PROMPT, num_draft_tokens=4, draft_source=Source(run.tokens(20)))
    list(islice(tokens, 3))
    tokens.close()
    require_equal(target_arrays(session.state()), run.state(3), what="a run without drafts")
    assert session.history == [*PROMPT, *run.tokens(3)]


def test_before_the_first_token(zoo: Zoo) -> None:
    """Closed before it was asked for anything, nothing was decoded."""
    session = Session(*zoo("gdn"))
    emit(session, PROMPT, num_draft_tokens=3).close()
    assert (session.target_length, session.history) == (0, [])


def test_an_exception_of_the_consumer(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """An exception thrown in has the effect of a close, and goes on to the consumer."""
    run = plain("flash-next")
    session = Session(*zoo("flash-next"))
    tokens = emit(session, PROMPT, num_draft_tokens=4, draft_source=Source(run.tokens(20)))
    list(islice(tokens, 3))
    with pytest.raises(PlantedError):
        tokens.throw(PlantedError())
    require_equal(target_arrays(session.state()), run.state(3), what="a run without drafts")


def test_a_failing_source(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A draft source that fails leaves the caches at the last token handed out."""
    run = plain("flash-next")
    session = Session(*zoo("flash-next"))
    with pytest.raises(PlantedError):
        list(emit(session, PROMPT, num_draft_tokens=4, draft_source=fail))
    require_equal(target_arrays(session.state()), run.state(1), what="a run without drafts")


def test_a_source_out_of_the_vocabulary(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """So does one that drafts a token that does not exist."""
    run = plain("flash-next")
    session = Session(*zoo("flash-next"))
    source = Source([*run.tokens(5), 260, 260])
    with pytest.raises(DecoderError, match="token 260 is outside the vocabulary"):
        list(emit(session, PROMPT, num_draft_tokens=4, draft_source=source))
    require_equal(target_arrays(session.state()), run.state(6), what="a run without drafts")


def test_a_source_of_too_few(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A draft source may give fewer drafts than asked for, and none."""
    stream = plain("gdn").tokens(9)
    emitted = emit(
        Session(*zoo("gdn")),
        PROMPT,
        num_draft_tokens=4,
        max_tokens=9,
        draft_source=lambda history, k: stream[len(history) - len(PROMPT) :][: k % 3],
    )
    assert [token for token, *_ in emitted] == stream


def test_a_source_of_too_many(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """Of more drafts than asked for, the first K are taken."""
    stream = plain("gdn").tokens(20)
    session = Session(*zoo("gdn"))
    emitted = emit(
        session,
        PROMPT,
        num_draft_tokens=2,
        max_tokens=7,
        draft_source=lambda history, k: stream[len(history) - len(PROMPT) :],
    )
    assert [token for token, *_ in emitted] == stream[:7]
    assert session.counters.drafted_by_depth == [2, 2]
