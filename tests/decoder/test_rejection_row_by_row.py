"""Rejection sampling row by row, as processors need it: what judging all rows at once gives."""

from collections.abc import Sequence

import mlx.core as mx

from mtp_decoder import Sampling
from mtp_decoder.accepting import Acceptance, Drafts, accept
from mtp_decoder.processing import Processing
from mtp_decoder.rules import make_rule

K, VOCABULARY, POSITION = 3, 6, 9
LOGITS = mx.random.normal((K + 1, VOCABULARY), key=mx.random.key(0)) * 2
LAWS = mx.softmax(mx.random.normal((K, VOCABULARY), key=mx.random.key(1)), axis=-1)


def _unchanged(tokens: mx.array, logits: mx.array) -> mx.array:
    return logits


def _accepted(drafts: Sequence[int], seed: int, processing: Processing) -> Acceptance:
    rule = make_rule(Sampling(temp=1.0, seed=seed, acceptance="rejection"))
    return accept(Drafts(tuple(drafts), POSITION, LAWS), LOGITS, [0], rule, processing)


def test_every_draft_is_judged_by_its_own_law() -> None:
    """A processor that changes nothing changes no token: draft i is held to the law of draft i.

    For seeds enough that a later draft, held to the first one's law, would fare otherwise.
    """
    accepted: set[int] = set()
    for seed in range(60):
        drafts = [(seed + 2 * i) % VOCABULARY for i in range(K)]
        at_once = _accepted(drafts, seed, Processing())
        by_row = _accepted(drafts, seed, Processing([_unchanged]))
        assert (by_row.accepted, by_row.tokens) == (at_once.accepted, at_once.tokens)
        accepted.add(by_row.accepted)
    assert accepted == {0, 1, 2, 3}
