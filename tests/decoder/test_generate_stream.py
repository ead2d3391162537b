"""Generation: drafts change no token."""

from collections.abc import Callable

import pytest

from mtp_conformance.exactness import bits_equal
from mtp_decoder import generate_step
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, STRATEGIES, Plain, Source

MODELS = ("window", "flash-next")


@pytest.mark.parametrize("k", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("name", MODELS)
def test_half_right_drafts(zoo: Zoo, plain: Callable[..., Plain], name: str, k: int) -> None:
    """Tokens with K drafts a round, some right and some wrong, are those without."""
    expected = plain(name).tokens(10)
    target, head = zoo(name)
    emitted = generate_step(
        PROMPT,
        target,
        head,
        num_draft_tokens=k,
        max_tokens=10,
        draft_source=Source(expected, wrong=(2, 6, 7)),
    )
    assert [token for token, *_ in emitted] == expected


@pytest.mark.parametrize("k", [1, 3, 8])
def test_drafts_of_the_head(zoo: Zoo, plain: Callable[..., Plain], k: int) -> None:
    """Tokens with the head's own drafts are those without."""
    emitted = generate_step(PROMPT, *zoo("gdn-mtp2"), num_draft_tokens=k, max_tokens=10)
    assert [token for token, *_ in emitted] == plain("gdn-mtp2").tokens(10)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("policy", ["draft", "target"])
def test_every_strategy_and_policy(
    zoo: Zoo, plain: Callable[..., Plain], strategy: str, policy: str
) -> None:
    """No strategy and no policy for the head's rows changes a token."""
    expected = plain("flash-next").tokens(10)
    target, head = zoo("flash-next")
    emitted = generate_step(
        PROMPT,
        target,
        head,
        max_tokens=10,
        rewind=strategy,
        head_rows=policy,
        draft_source=Source(expected, wrong=(2, 6)),
    )
    assert [token for token, *_ in emitted] == expected


def test_log_probabilities(zoo: Zoo) -> None:
    """Drafts change no bit of the log-probabilities."""
    target, head = zoo("flash-next")
    without = list(generate_step(PROMPT, target, num_draft_tokens=0, max_tokens=9))
    source = Source([token for token, *_ in without], wrong=(3,))
    drafted = generate_step(PROMPT, target, head, max_tokens=9, draft_source=source)
    differing = [
        index
        for index, (one, other) in enumerate(zip(drafted, without, strict=True))
        if bits_equal(one[1], other[1]) is not None
    ]
    assert differing == []
