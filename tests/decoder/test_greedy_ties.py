"""Greedy decoding where maxima tie."""

import mlx.core as mx
import pytest

from mtp_decoder import Session
from tests.decoder.chain_model import ChainHead, ChainTarget


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_the_lowest_id(k: int) -> None:
    """Of equal maxima drafting, verifying and plain decoding take the lowest id."""
    tied = mx.array([[0.0, 2.0, 1.0, 2.0], [0.0, 0.0, 3.0, 3.0]] + [[1.0, 1.0, 0.0, 1.0]] * 2)
    session = Session(ChainTarget(tied), ChainHead(tied))
    tokens = list(session.prefill([0]).tokens)
    while len(tokens) < 12:
        done = session.round(k)
        tokens += done.tokens
        assert done.accepted == k
    assert tokens[:6] == [1, 2, 0, 1, 2, 0]


def test_no_tie_of_rounding() -> None:
    """The likeliest token is the row's maximum, also where its log-probability rounds to a tie."""
    row = mx.zeros(300).at[mx.array([7, 9])].add(mx.array([0.5, 0.50390625]))
    logits = mx.broadcast_to(row, (300, 300)).astype(mx.bfloat16)
    session = Session(ChainTarget(logits))
    done = session.prefill([0])
    assert done.logprobs[0, 7].item() == done.logprobs[0, 9].item()
    assert done.tokens == (9,)
