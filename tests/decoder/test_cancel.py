"""Session: a round that is given up."""

from collections.abc import Callable

import pytest

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import Session
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import STRATEGIES, Plain, scripted

MODELS = ("window", "ple", "qsa", "flash-next", "gdn-mtp2")
BEFORE = "the state before the round"


@pytest.mark.parametrize("name", MODELS)
def test_after_drafting(fork: Callable[..., Session], name: str) -> None:
    """A round cancelled after drafting leaves no trace in target and head."""
    session = fork(name)
    before = session.state()
    session.draft(3)
    session.cancel()
    require_equal(session.state(), before, what=BEFORE)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_after_verifying(fork: Callable[..., Session], name: str, strategy: str) -> None:
    """A round cancelled after its verify pass leaves no trace in target and head."""
    session = fork(name, rewind=strategy)
    before, length = session.state(), session.target_length
    session.verify(session.draft(3))
    session.cancel()
    require_equal(session.state(), before, what=BEFORE)
    assert session.target_length == length


@pytest.mark.parametrize("name", MODELS)
def test_the_next_round(
    fork: Callable[..., Session], plain: Callable[..., Plain], name: str
) -> None:
    """After a cancelled round the next one gives the same bits as if it had never been."""
    session = fork(name)
    stream = plain(name).tokens(4)
    twin = session.fork()
    session.verify(scripted(stream, 1, 3, 1))
    session.cancel()
    done, expected = (s.round(drafts=scripted(stream, 1, 3, 2)) for s in (session, twin))
    assert (done.tokens, bits_equal(done.logits, expected.logits)) == (expected.tokens, None)
    require_equal(session.state(), twin.state(), what="a session without the cancelled round")


def test_without_a_round(decoding: Callable[..., Decoding]) -> None:
    """Cancelling does nothing between rounds: a settled round stays."""
    session = decoding("flash-next").session
    session.round(3)
    state, history = session.state(), list(session.history)
    session.cancel()
    require_equal(session.state(), state, what="the state of the settled round")
    assert session.history == history


def test_a_cancelled_round_is_not_counted(decoding: Callable[..., Decoding]) -> None:
    """A cancelled round counts neither as a round nor as drafts."""
    session = decoding("gdn").session
    session.verify(session.draft(3))
    session.cancel()
    counters = session.counters
    assert (counters.rounds, counters.drafted, counters.rewinds) == (0, 0, 0)
