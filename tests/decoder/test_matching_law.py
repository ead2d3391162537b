"""Exact-match acceptance: the law of the tokens, whatever K is.

The noise of one position is one draw, so the law is not enumerated: tokens of many positions are
counted against it. Seeds are fixed, so the counts are always the same.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import Sampling, Session
from tests.decoder.chain_model import ChainHead, ChainTarget, Table, logits_of, table

P = table(["1/8 1/2 3/8", "1/2 0 1/2", "5/8 1/4 1/8"])
Q = table(["1/2 1/4 1/4", "1/4 3/4 0", "1/2 1/2 0"])
COUNT = 4000


def _pairs(logits: mx.array, k: int, **sampling: Any) -> Counter[tuple[int, int]]:
    session = Session(ChainTarget(logits), ChainHead(logits_of(Q)), sampling=Sampling(**sampling))
    tokens = list(session.prefill([0]).tokens)
    while len(tokens) < COUNT:
        tokens += session.round(k).tokens
    return Counter(pairwise(tokens))


def _surprise(pairs: Counter[tuple[int, int]], law: Table) -> float:
    """Chi-square of tokens against the law after each token, in units of its degrees."""
    total, degrees = 0.0, 0
    for before, row in enumerate(law):
        seen = sum(pairs[before, token] for token in range(len(row)))
        for token, p in enumerate(row):
            due = float(p) * seen
            assert due or not pairs[before, token]
            total += (pairs[before, token] - due) ** 2 / due if due else 0.0
        degrees += sum(map(bool, row)) - 1
    return total / degrees


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("temp", [0.3, 1.0, 2.0])
def test_temperatures(temp: float, k: int) -> None:
    """At every temperature tokens come as often as the target's law says."""
    assert _surprise(_pairs(logits_of(P, temp), k, temp=temp, seed=5), P) < 3


def test_a_cut() -> None:
    """With a cut the rest has its own law."""
    law = table(["0 4/7 3/7", "1/2 0 1/2", "5/7 2/7 0"])
    assert _surprise(_pairs(logits_of(P), 2, temp=1.0, min_p=0.3, seed=5), law) < 3


def test_another_law_is_told_apart() -> None:
    """The same counts are far from the law at another temperature."""
    assert _surprise(_pairs(logits_of(P), 2, temp=0.6, seed=5), P) > 10
