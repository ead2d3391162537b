"""Ties at the selection cut of pooled index attention, and inputs without them.

A ReLU makes exact zeros, so the last selected block and the first left out can have equal
scores. The specification then takes the lowest index; other implementations do not, and a
score that differs in its last bit decides otherwise. A case that must not depend on that
asks how far apart the two scores stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from reference_models.hybrid import HybridLayer, HybridModel
from reference_models.pooled import IndexedAttention


def smallest_cut_gap(model: HybridModel, tokens: Sequence[int], new_tokens: int) -> float:
    """Smallest distance between the last selected and the first unselected block score.

    Args:
        model: the target.
        tokens: the prompt, at least one token.
        new_tokens: greedy tokens to decode after it, which count too.

    Returns:
        0.0 for an exact tie; infinity where nothing is ever cut.
    """
    indexes = [
        layer.attention.index
        for layer in model.layers
        if isinstance(layer, HybridLayer) and isinstance(layer.attention, IndexedAttention)
    ]
    for index in indexes:
        index.watch_cut, index.cut_gaps = True, []
    try:
        cache, step = model.make_cache(), mx.array([list(tokens)])
        for _ in range(new_tokens + 1):
            step = model(step, cache)[:, -1:].argmax(-1)
        gaps = [gap.min() for index in indexes for gap in index.cut_gaps]
        return cast("float", mx.stack(gaps).min().item()) if gaps else float("inf")
    finally:
        for index in indexes:
            index.watch_cut, index.cut_gaps = False, []
