"""Generation: the sampler."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_decoder import generate_step
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Plain, Source
from tests.models.helpers import listed


def second_best(logprobs: mx.array) -> mx.array:
    """The second likeliest token of every row."""
    return mx.argsort(logprobs, axis=-1)[..., -2]


def test_rows(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A sampler is called with one row for the prompt, and with K + 1 rows a round."""
    shapes: list[tuple[int, ...]] = []

    def sampler(logprobs: mx.array) -> mx.array:
        shapes.append(logprobs.shape)
        return mx.argmax(logprobs, axis=-1)

    source = Source(plain("gdn").tokens(9))
    target, head = zoo("gdn")
    list(generate_step(PROMPT, target, head, max_tokens=9, sampler=sampler, draft_source=source))
    assert shapes == [(1, 260), (4, 260), (4, 260)]


def test_it_is_given_log_probabilities(zoo: Zoo) -> None:
    """What a sampler is given sums to one once exponentiated."""
    sums: list[float] = []

    def sampler(logprobs: mx.array) -> mx.array:
        sums.extend(listed(mx.exp(logprobs).sum(axis=-1)))
        return mx.argmax(logprobs, axis=-1)

    list(generate_step(PROMPT, *zoo("gdn"), max_tokens=4, sampler=sampler))
    assert max(abs(total - 1) for total in sums) < 1e-5


@pytest.mark.parametrize("k", [1, 3, 8])
def test_its_tokens_are_emitted(zoo: Zoo, k: int) -> None:
    """Any deterministic sampler emits the same tokens with drafts as without."""
    target, head = zoo("flash-next")
    without = generate_step(PROMPT, target, num_draft_tokens=0, max_tokens=10, sampler=second_best)
    expected = [token for token, *_ in without]
    emitted = generate_step(
        PROMPT,
        target,
        head,
        num_draft_tokens=k,
        max_tokens=10,
        sampler=second_best,
        draft_source=Source(expected, wrong=(4,)),
    )
    assert [token for token, *_ in emitted] == expected


def test_it_is_obeyed(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """The sampler, not the likeliest token, decides."""
    token, *_ = next(generate_step(PROMPT, *zoo("gdn"), sampler=second_best))
    assert token != plain("gdn").tokens(1)[0]
