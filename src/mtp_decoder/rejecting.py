"""Rejection sampling of drafts: Leviathan et al. 2023, arXiv:2211.17192, algorithm 1.

p is the target's law of a position, q the law its draft was drawn from. The draft stands with
probability min(1, p/q); else the token is drawn from max(p - q, 0), normalised. The law of the
outcome is p. Pure functions of p, q and uniform numbers, whose law can be enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import mlx.core as mx

Uniform = Callable[[int], float]


def judge(
    drafts: Sequence[int], p: mx.array, q: mx.array, accepting: Uniform, drawing: Uniform
) -> list[int]:
    """The tokens that come of drafts: those that stand, and one drawn if a row is left for it.

    Args:
        drafts: K token ids.
        p: [K+1, V] the target's probabilities; with K rows nothing follows a full accept.
        q: [K, V] the probabilities the drafts were drawn from.
        accepting: from a row to the uniform number in [0, 1) that its draft is accepted by.
        drawing: from a row to the one that its token is drawn by.

    Returns:
        The accepted drafts and the token drawn after them. Numbers of rows behind it are not
        asked for.
    """
    chances = _of_tokens(p, drafts)
    proposed = _of_tokens(q, drafts)
    for i, (chance, proposal) in enumerate(zip(chances, proposed, strict=True)):
        if not accepting(i) * proposal < chance:
            token = draw(residual(p[i], q[i]), drawing(i))
            return [*drafts[:i], cast("int", token.item())]
    if p.shape[0] == len(drafts):
        return list(drafts)
    return [*drafts, cast("int", draw(p[-1], drawing(len(drafts))).item())]


def residual(p: mx.array, q: mx.array) -> mx.array:
    """What p has more than q, [V], not normalised; p itself where rounding leaves nothing."""
    more = mx.maximum(p - q, 0)
    return mx.where(more.sum() > 0, more, p)


def draw(weights: mx.array, u: float) -> mx.array:
    """The token [...] in whose stretch of the summed weights [..., V] lies the u-th part.

    A token without weight is never drawn, whatever the sums round to.
    """
    sums = mx.cumsum(weights, axis=-1)
    beyond = (sums > u * sums[..., -1:]) & (weights > 0)
    last = weights.shape[-1] - 1 - mx.argmax(weights[..., ::-1] > 0, axis=-1)
    return mx.where(beyond.any(axis=-1), mx.argmax(beyond, axis=-1), last)


def _of_tokens(rows: mx.array, tokens: Sequence[int]) -> list[float]:
    if not tokens:
        return []
    index = mx.array(list(tokens))[:, None]
    return cast(
        "list[float]", mx.take_along_axis(rows[: len(tokens)], index, axis=-1)[:, 0].tolist()
    )
