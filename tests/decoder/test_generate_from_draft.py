"""Generation: which tokens were drafted."""

from collections.abc import Callable
from itertools import islice

import pytest

from mtp_decoder import generate_step
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, Source

# Wrong guesses by place, and for each of ten tokens whether a right draft stood for it (K = 3).
EXPECTED = {
    (): "-ddd-ddd-d",
    (1,): "--ddd-ddd-",
    (2, 3): "-d--ddd-dd",
    (5,): "-ddd--ddd-",
    tuple(range(10)): "----------",
}


@pytest.mark.parametrize("wrong", EXPECTED)
def test_accepted_drafts_alone(
    zoo: Zoo, plain: Callable[..., Plain], wrong: tuple[int, ...]
) -> None:
    """`from_draft` is true for accepted drafts, false for corrections and bonus tokens."""
    target, head = zoo("gdn")
    source = Source(plain("gdn").tokens(16), wrong=wrong)
    emitted = islice(generate_step(PROMPT, target, head, draft_source=source), 10)
    assert "".join("-d"[drafted] for *_, drafted in emitted) == EXPECTED[wrong]


def test_never_without_drafts(zoo: Zoo) -> None:
    """Without drafts no token is marked as drafted."""
    emitted = generate_step(PROMPT, zoo("gdn")[0], num_draft_tokens=0, max_tokens=5)
    assert [drafted for *_, drafted in emitted] == [False] * 5
