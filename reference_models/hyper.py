"""Hyper-connections: a residual of c streams, mixed into and out of every block.

    n = groupnorm(x);  m = sigmoid(W_up silu(W_down n / c));  u = mean over streams of m * n
    inj = 2 sigmoid(W_inj n / c);  x <- x + inj_s * y          broadcast over the streams

(Zhu et al., "Hyper-Connections", 2024; Hugging Face `Qwen4ExpTextGatedResidual`.) The final
mixer has no W_inj and takes the place of the final norm.
"""

from __future__ import annotations

import mlx.core as mx

from reference_models.config import HybridConfig
from reference_models.mlp import linear
from reference_models.norms import rms_norm, silu
from reference_models.weights import Fill, Tensor, Weights


class HyperConnection:
    """Reads one block's input out of the wide residual and writes its output back."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    @staticmethod
    def tensors(config: HybridConfig, *, injects: bool) -> dict[str, Tensor]:
        """Names and shapes of the weights; the final mixer does not inject."""
        wide, rank = config.wide_size, config.hc_lowrank
        inject = {"block_inject_weight.weight": Tensor((config.hc_count, wide), Fill.LOUD_MATRIX)}
        return {
            "hc_norm.weight": Tensor((wide,), Fill.NORM_ABOUT_ZERO),
            "input_mix_weight_down.weight": Tensor((rank, wide), Fill.LOUD_MATRIX),
            "input_mix_weight_up.weight": Tensor((wide, rank), Fill.LOUD_MATRIX),
            **(inject if injects else {}),
        }

    def read(self, x: mx.array) -> mx.array:
        """The block's input [B, T, H] out of the residual x [B, T, c*H]."""
        c, w = self._config, self._weights
        normed = self._normed(x)
        low = silu(linear(normed, w["input_mix_weight_down.weight"]) / c.hc_count)
        mix = mx.sigmoid(linear(low, w["input_mix_weight_up.weight"]))
        return (mix * normed).reshape(*x.shape[:2], c.hc_count, c.hidden_size).mean(axis=2)

    def write(self, x: mx.array, y: mx.array) -> mx.array:
        """The residual x [B, T, c*H] with the block's output y [B, T, H] injected."""
        c, w = self._config, self._weights
        inject = linear(self._normed(x), w["block_inject_weight.weight"]) / c.hc_count
        share = 2.0 * mx.sigmoid(inject)
        return x + (share[..., None] * y[:, :, None]).reshape(x.shape)

    def _normed(self, x: mx.array) -> mx.array:
        c = self._config
        return rms_norm(x, self._weights["hc_norm.weight"], c.rms_norm_eps, c.hc_count)
