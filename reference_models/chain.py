"""The drafts of a head, run alone: what a drafting loop has to come to.

    (h_i, t_{i+1}) for every pair of the tokens;  d_1 = argmax of the last;
    d_{j+1} = argmax of the head on (its own hidden, d_j)

written without a cache that anything is cut from. Ties go to the lowest id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead


def chained_drafts(
    target: HybridModel, head: MTPHead, tokens: Sequence[int], k: int
) -> list[tuple[int, float]]:
    """K drafts after the tokens, of which the last is not in the target's cache yet.

    Args:
        target: the model.
        head: its head.
        tokens: prompt and emitted tokens, at least two.
        k: number of drafts.

    Returns:
        Each draft, and its logit's distance from the runner-up's.
    """
    x = target.embed(mx.array([tokens[:-1]]))
    for layer in target.layers:
        x = layer(x, mx.array([tokens[:-1]]), layer.make_cache())
    cache = head.make_cache()
    logits, hidden = head(x, mx.array([tokens[1:]]), cache)
    drafts: list[tuple[int, float]] = []
    for _ in range(k):
        row = logits[0, -1].astype(mx.float32)
        second, first = cast("list[float]", mx.sort(row)[-2:].tolist())
        draft = cast("int", row.argmax().item())
        drafts.append((draft, first - second))
        logits, hidden = head(hidden[:, -1:], mx.array([[draft]]), cache)
    return drafts
