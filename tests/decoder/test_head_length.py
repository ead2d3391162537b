"""Session: the head's cache stays one pair short of the target's tokens."""

from collections.abc import Callable

import pytest

from tests.decoder.conftest import Decoding
from tests.decoder.helpers import POLICIES, Plain, head_lengths, play

SCRIPT = ((0, 0), (3, 1), (3, 3), (2, 0), (0, 0), (1, 1), (4, 2), (0, 0), (3, 0))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["gdn", "gdn-mtp2", "flash-next"])
def test_after_every_round(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], name: str, policy: str
) -> None:
    """Whatever a round drafts and accepts, every head layer ends one pair short."""
    stream = plain(name).tokens(24)
    session, cache, target, head = decoding(name, head_rows=policy)
    emitted, lengths, expected = 1, list[int](), list[int]()
    for k, accepted in SCRIPT:
        emitted += len(play(session, stream, emitted, k, accepted).tokens)
        lengths += head_lengths(cache, target, head)
        expected += [session.target_length - 1] * len(head.layers)
    assert lengths == expected


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["gdn", "gdn-mtp2", "flash-next"])
def test_after_every_cut(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], name: str, policy: str
) -> None:
    """The same holds after every cut of a fully accepted round."""
    session, cache, target, head = decoding(name, head_rows=policy)
    play(session, plain(name).tokens(5), 1, 3, 3)
    found = list[set[int]]()
    for emitted in (3, 2, 1):
        session.cut(emitted)
        found.append(set(head_lengths(cache, target, head)))
    assert found == [{15}, {14}, {13}]


def test_after_the_prompt(decoding: Callable[..., Decoding]) -> None:
    """A prompt of n tokens leaves n - 1 pairs; the last one waits for its second half."""
    _, cache, target, head = decoding("gdn-mtp2")
    assert head_lengths(cache, target, head) == [12, 12]
