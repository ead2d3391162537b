"""Session: what is counted."""

import time
from collections.abc import Callable

import mlx.core as mx

from mtp_conformance.slowing import slowed
from mtp_decoder import Counters
from mtp_decoder.counters import PHASES
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import Plain, play

SCRIPT = ((3, 3), (3, 1), (2, 0), (0, 0))


def _run(decoding: Callable[..., Decoding], stream: list[int]) -> Counters:
    session = decoding("gdn").session
    emitted = 1
    for k, accepted in SCRIPT:
        emitted += len(play(session, stream, emitted, k, accepted).tokens)
    return session.counters


def test_totals(decoding: Callable[..., Decoding], plain: Callable[..., Plain]) -> None:
    """Rounds, drafts, accepts and rejects are counted; a round without a reject rewinds nothing."""
    counted = _run(decoding, plain("gdn").tokens(12))
    totals = (counted.rounds, counted.drafted, counted.accepted, counted.rejected, counted.rewinds)
    assert totals == (4, 8, 4, 4, 2)


def test_by_depth(decoding: Callable[..., Decoding], plain: Callable[..., Plain]) -> None:
    """At every depth it is counted how often a draft was made there, and how often accepted."""
    counted = _run(decoding, plain("gdn").tokens(12))
    assert counted.drafted_by_depth == [3, 3, 2]
    assert counted.accepted_by_depth == [2, 1, 1]


def test_a_cut_is_a_rewind_of_the_same_round(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain]
) -> None:
    """Cutting a round counts another rewind, no other round, and only what stays emitted."""
    session = decoding("gdn").session
    play(session, plain("gdn").tokens(5), 1, 3, 3)
    session.cut(2)
    counted = session.counters
    assert (counted.rounds, counted.accepted, counted.rewinds) == (1, 2, 1)
    assert counted.accepted_by_depth == [1, 1, 0]


def test_every_phase_takes_time(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain]
) -> None:
    """Wall time is charged to each phase that ran."""
    seconds = _run(decoding, plain("gdn").tokens(12)).seconds
    assert set(seconds) == set(PHASES)
    assert min(seconds.values()) > 0


def test_submitted_work_is_waited_for() -> None:
    """What a phase submitted and left, as a caller's own function may, is done when it ends."""
    counters, work = Counters(), slowed([mx.zeros(1)], 16)
    with counters.phase("draft"):
        mx.async_eval(work)
    start = time.perf_counter()
    mx.synchronize()
    assert time.perf_counter() - start < counters.seconds["draft"] / 4


def test_a_new_session_has_counted_nothing() -> None:
    """Counters start at zero, each with lists of its own."""
    first, second = Counters(), Counters()
    first.count_round(2, 1)
    assert (second.rounds, second.drafted_by_depth) == (0, [])
