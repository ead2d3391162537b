"""Choosing the k largest with one rule for ties: the lowest index wins.

Libraries disagree on ties (argpartition, stable sort, top-k all differ), and an index score
after a ReLU is exactly zero often enough for that to matter. Counting who comes before whom
gives every entry a rank of its own, on any backend.
"""

from __future__ import annotations

import mlx.core as mx


def ranks(scores: mx.array) -> mx.array:
    """Rank of every entry on the last axis, 0 for the largest: [..., N] to int32 [..., N]."""
    own, other = scores[..., :, None], scores[..., None, :]
    index = mx.arange(scores.shape[-1])
    earlier = index[None, :] < index[:, None]
    before = (other > own) | ((other == own) & earlier)
    return before.astype(mx.int32).sum(axis=-1)


def top_k(scores: mx.array, k: int) -> mx.array:
    """Indices of the k largest entries of [..., N], best first: int [..., k]."""
    return mx.argsort(ranks(scores), axis=-1)[..., :k]


def gap_at_cut(scores: mx.array, k: int) -> mx.array:
    """How far the k-th largest entry lies above the next one: [..., N] to [...].

    Infinite where k entries or fewer exist, so that nothing is cut.
    """
    if scores.shape[-1] <= k:
        return mx.full(scores.shape[:-1], mx.inf)
    ordered = mx.sort(scores, axis=-1)
    return ordered[..., -k] - ordered[..., -k - 1]
