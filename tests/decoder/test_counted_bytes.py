"""Session: the bytes a rewind needed are counted."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_decoder import Rewind
from mtp_decoder.window import Window
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import Plain, play


@pytest.mark.parametrize("strategy", list(Rewind))
def test_of_the_last_round(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], strategy: Rewind
) -> None:
    """The counter holds what the strategy remembered of the last pass, rows of K + 1."""
    session, _, target, _ = decoding("gdn", rewind=strategy)
    play(session, plain("gdn").tokens(5), 1, 3, 1)
    window = Window(target, target.make_cache(), strategy)
    window.run(mx.array([[1, 2, 3, 4]]))
    assert session.counters.rewind_bytes == window.nbytes()


def test_there_are_some(decoding: Callable[..., Decoding], plain: Callable[..., Plain]) -> None:
    """A tape is counted in bytes, four rows of it four times as many as one row."""
    session = decoding("gdn").session
    play(session, plain("gdn").tokens(6), 1, 0, 0)
    one = session.counters.rewind_bytes
    play(session, plain("gdn").tokens(6), 2, 3, 1)
    assert session.counters.rewind_bytes == 4 * one > 0
