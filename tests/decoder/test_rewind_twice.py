"""Session: rewinding a settled round again, to fewer tokens."""

from collections.abc import Callable

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import POLICIES, PROMPT, STRATEGIES, Plain, play, target_arrays

MODELS = ("window", "flash-next", "gdn-mtp2")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_twice_is_once(
    fork: Callable[..., Session],
    plain: Callable[..., Plain],
    name: str,
    strategy: str,
    policy: str,
) -> None:
    """Cutting a round step by step ends where one rewind to the last length ends."""
    run = plain(name)
    stream = run.tokens(5)
    session = fork(name, rewind=strategy, head_rows=policy)
    twin = session.fork()
    play(session, stream, 1, 3, 3)
    session.cut(2)
    session.cut(1)
    play(twin, stream, 1, 3, 3)
    twin.cut(1)
    require_equal(session.state(), twin.state(), what="a single cut")
    require_equal(target_arrays(session.state()), run.state(2), what="a run without drafts")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_full_ring_row_by_row(zoo: Zoo, strategy: str) -> None:
    """In row-exact mode, too, a second cut finds a full ring as it was before the round.

    A replay then writes row by row into the ring that was put back, and may do so again.
    """
    prompt = [*PROMPT, *PROMPT[:4]]
    plain, session = (
        Session(*zoo("window"), rewind=strategy, row_exact=exact) for exact in (False, True)
    )
    stream = list(plain.prefill(prompt).tokens)
    stream += plain.round(0).tokens
    after_one = target_arrays(plain.state())
    for _ in range(3):
        stream += plain.round(0).tokens
    session.prefill(prompt)
    session.round(drafts=[*stream[1:4], (stream[4] + 1) % 256])
    session.cut(1)
    require_equal(target_arrays(session.state()), after_one, what="a step without drafts")


def test_history_follows(decoding: Callable[..., Decoding], plain: Callable[..., Plain]) -> None:
    """The tokens a cut takes back leave the history, and the last one left is the anchor."""
    stream = plain("gdn").tokens(5)
    session = decoding("gdn").session
    play(session, stream, 1, 3, 3)
    session.cut(2)
    assert session.history[-3:] == stream[:3]
    assert session.anchor == stream[2]


def test_rounds_go_on_after_a_cut(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain]
) -> None:
    """A round after a cut emits the tokens the cut took back."""
    stream = plain("flash-next").tokens(6)
    session = decoding("flash-next").session
    play(session, stream, 1, 3, 3)
    session.cut(1)
    assert play(session, stream, 2, 3, 3).tokens == tuple(stream[2:6])
