"""The MTP head: one more layer or a few that predict the token after the next.

Pair i is (h_i, t_{i+1}): the target's residual after its last layer at position i and the
token that followed. Its output predicts t_{i+2}; fed back as the next hidden it drafts
deeper.

    qwen3_5:    x = W_fc [norm_e(E[t]) ; norm_h(h)]; layers; y = norm(x); logits = W_o y
    qwen4_exp:  x_s = W_e norm_e(E[t]) + W_h norm_h(h)_s for every stream s; layers;
                logits = W_o mixer(x)

In the first form the chain continues with y, in the second with the wide x before the
mixer, and norm_h takes its mean over all streams at once. Several layers run one after the
other. (Hugging Face names `mtp.*`; forms as read in SGLang and mlx-lm pull request 990.)
State: one attention cache a layer; index i of it belongs to pair i.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from reference_models.config import FULL, INDEXED, HybridConfig
from reference_models.hybrid import (
    HybridLayer,
    HybridModel,
    final_joint,
    final_tensors,
    layer_tensors,
)
from reference_models.mlp import linear
from reference_models.moe import SparseMoE
from reference_models.norms import rms_norm
from reference_models.weights import Fill, Tensor, Weights, prefixed


class MTPHead:
    """The head of one model; shares the target's embedding and output projection."""

    def __init__(self, config: HybridConfig, weights: Weights, target: HybridModel) -> None:
        self._config = config
        self._weights = weights
        self._target = target
        kind = head_kind(config)
        self.layers = [
            HybridLayer(config, weights.at(f"layers.{index}"), kind)
            for index in range(config.mtp_num_hidden_layers)
        ]
        self._final = final_joint(config, weights)

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Every tensor of the head, names below `mtp.`."""
        h, wide = config.hidden_size, config.wide_size
        found = {
            "pre_fc_norm_embedding.weight": Tensor((h,), Fill.NORM_ABOUT_ZERO),
            "pre_fc_norm_hidden.weight": Tensor((wide,), Fill.NORM_ABOUT_ZERO),
        }
        if config.hc_count > 1:
            found["fc_embedding.weight"] = Tensor((h, h), Fill.LOUD_MATRIX)
            found["fc_hidden.weight"] = Tensor((h, h), Fill.LOUD_MATRIX)
        else:
            found["fc.weight"] = Tensor((h, 2 * h), Fill.LOUD_MATRIX)
        for index in range(config.mtp_num_hidden_layers):
            found |= prefixed(f"layers.{index}", layer_tensors(config, head_kind(config)))
        return {**found, **final_tensors(config)}

    def make_cache(self) -> list[Any]:
        """One empty cache a layer of the head."""
        return [layer.make_cache() for layer in self.layers]

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """Run pairs (hidden [B, T, W], tokens [B, T]); advances the cache by T pairs.

        Returns:
            Draft logits [B, T, V] and the hidden that continues the chain [B, T, W].
        """
        x = self._join(hidden, tokens)
        for layer, state in zip(self.layers, cache, strict=True):
            x = layer(x, tokens, state)
        read = self._final.read(x)
        return self._target.project(read), x if self._config.hc_count > 1 else read

    def _join(self, hidden: mx.array, tokens: mx.array) -> mx.array:
        w, c = self._weights, self._config
        embedded = self._target.embed_tokens(tokens)
        embedded = rms_norm(embedded, w["pre_fc_norm_embedding.weight"], c.rms_norm_eps)
        hidden = rms_norm(hidden, w["pre_fc_norm_hidden.weight"], c.rms_norm_eps)
        if c.hc_count == 1:
            return linear(mx.concatenate([embedded, hidden], axis=-1), w["fc.weight"])
        streams = hidden.reshape(*hidden.shape[:2], c.hc_count, c.hidden_size)
        joined = linear(streams, w["fc_hidden.weight"])
        joined = joined + linear(embedded, w["fc_embedding.weight"])[:, :, None]
        return joined.reshape(hidden.shape)

    def routed_expert_calls(self) -> int:
        """How often routed experts of the head have run so far."""
        blocks = [layer.mlp for layer in self.layers]
        return sum(block.experts.calls for block in blocks if isinstance(block, SparseMoE))


def head_kind(config: HybridConfig) -> str:
    """The head's attention: indexed where the target's is, full otherwise."""
    return INDEXED if INDEXED in config.layer_types else FULL
