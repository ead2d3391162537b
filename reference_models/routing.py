"""Which experts the router of every layer chooses, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import mlx.core as mx

from reference_models.hybrid import HybridModel
from reference_models.moe import RoutedExperts, SparseMoE


class _Watched:
    """Experts that write down which of them were chosen."""

    def __init__(self, experts: RoutedExperts) -> None:
        self._experts = experts
        self.chosen: list[list[int]] = []

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """As `RoutedExperts`."""
        self.chosen += cast("list[list[int]]", chosen[0].tolist())
        return self._experts(x, chosen)


def routing(model: HybridModel, tokens: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """The experts chosen in one forward pass over the tokens, by layer with experts and token."""
    blocks = [layer.mlp for layer in model.layers if isinstance(layer.mlp, SparseMoE)]
    plain = [block.experts for block in blocks]
    watched = [_Watched(experts) for experts in plain]
    try:
        for block, watching in zip(blocks, watched, strict=True):
            block.experts = cast("RoutedExperts", watching)
        mx.eval(model(mx.array([list(tokens)])))
    finally:
        for block, experts in zip(blocks, plain, strict=True):
            block.experts = experts
    return [[tuple(row) for row in watching.chosen] for watching in watched]
