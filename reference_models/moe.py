"""Routed and shared experts.

    p = softmax(W_g u);  T = the k largest of p (renormalised if norm_topk_prob)
    y = sum_{e in T} p_e * down_e(silu(gate_e u) * up_e u) + sigmoid(w_s u) * MLP_shared(u)

(Hugging Face `Qwen3_5MoeSparseMoeBlock`.) Experts are gathered by index and applied as
one-row products, so a row's result does not depend on how many rows came with it.
"""

from __future__ import annotations

import mlx.core as mx

from reference_models.config import HybridConfig
from reference_models.mlp import DenseMLP, linear
from reference_models.norms import silu
from reference_models.ranking import top_k
from reference_models.weights import Tensor, Weights


class RoutedExperts:
    """The experts themselves: `gate_up` [E, 2F, H], gate first, and `down` [E, H, F].

    `calls` counts every use, so that a rewind can prove it made none.
    """

    def __init__(self, weights: Weights) -> None:
        self.gate_up = weights["gate_up_proj"]
        self.down = weights["down_proj"]
        self.calls = 0

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Run x [B, T, H] through experts chosen [B, T, k]: [B, T, k, H]."""
        self.calls += 1
        both = (self.gate_up[chosen] @ x[..., None, :, None]).squeeze(-1)
        gate, up = mx.split(both, 2, axis=-1)
        return (self.down[chosen] @ (silu(gate) * up)[..., None]).squeeze(-1)


class SparseMoE:
    """Router, routed experts and the gated shared expert."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._k = config.num_experts_per_tok
        self._renormalise = config.norm_topk_prob
        self._router = weights["gate.weight"]
        self.experts = RoutedExperts(weights.at("experts"))
        self._shared = DenseMLP(weights.at("shared_expert"))
        self._shared_gate = weights["shared_expert_gate.weight"]

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Names and shapes of the weights, experts stacked as Hugging Face stores them."""
        e, h, f = config.num_experts, config.hidden_size, config.moe_intermediate_size
        shared = DenseMLP.tensors(h, config.shared_expert_intermediate_size)
        return {
            "gate.weight": Tensor((e, h)),
            "experts.gate_up_proj": Tensor((e, 2 * f, h)),
            "experts.down_proj": Tensor((e, h, f)),
            **{f"shared_expert.{name}": tensor for name, tensor in shared.items()},
            "shared_expert_gate.weight": Tensor((1, h)),
        }

    def __call__(self, x: mx.array) -> mx.array:
        """Map x [B, T, H] to [B, T, H]."""
        probabilities = mx.softmax(linear(x, self._router).astype(mx.float32), axis=-1)
        chosen = mx.stop_gradient(top_k(probabilities, self._k))
        share = mx.take_along_axis(probabilities, chosen, axis=-1)
        if self._renormalise:
            share = share / share.sum(axis=-1, keepdims=True)
        routed = (self.experts(x, chosen) * share.astype(x.dtype)[..., None]).sum(axis=-2)
        return routed + mx.sigmoid(linear(x, self._shared_gate)) * self._shared(x)
