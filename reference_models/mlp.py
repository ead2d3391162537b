"""Dense feed-forward: down(silu(gate x) * up x) (Shazeer, "GLU variants", 2020)."""

from __future__ import annotations

import mlx.core as mx

from reference_models.norms import silu
from reference_models.weights import Tensor, Weights


def linear(x: mx.array, weight: mx.array) -> mx.array:
    """Multiply x [..., in] by weight [out, in] transposed."""
    return x @ weight.T


class DenseMLP:
    """A gated feed-forward block of hidden size H and inner size F."""

    def __init__(self, weights: Weights) -> None:
        self._gate = weights["gate_proj.weight"]
        self._up = weights["up_proj.weight"]
        self._down = weights["down_proj.weight"]

    @staticmethod
    def tensors(hidden: int, inner: int) -> dict[str, Tensor]:
        """Names and shapes of the weights."""
        return {
            "gate_proj.weight": Tensor((inner, hidden)),
            "up_proj.weight": Tensor((inner, hidden)),
            "down_proj.weight": Tensor((hidden, inner)),
        }

    def __call__(self, x: mx.array) -> mx.array:
        """Map x [B, T, H] to [B, T, H]."""
        return linear(silu(linear(x, self._gate)) * linear(x, self._up), self._down)
