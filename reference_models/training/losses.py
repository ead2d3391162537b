"""What training makes small.

    target:  mean of -log p(t_{i+1} | t_0 .. t_i)
    head:    mean over depths d and rows i of the cross entropy of the d-th draft's law, made from
             (hidden_i, t_{i+1} .. t_{i+d}), against the target's own law at row i + d
    index:   see `fast_forms`

A draft is accepted if the target agrees with it, so the head learns the target's law rather than
the text's. Depth d + 1 continues with the head's own hidden of depth d, as drafting does; its
keys are those of its own depth. Gradients of the head's loss reach the target's layers, not the
law it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead
from reference_models.training.fast_forms import build
from reference_models.training.recipe import Recipe


def losses(recipe: Recipe, arrays: Mapping[str, mx.array], tokens: mx.array) -> list[mx.array]:
    """The loss that is made small, the target's, the head's by depth, the index's, in nats.

    Args:
        recipe: which model, how deep the head, which shares.
        arrays: its weights, float32.
        tokens: [B, T + 1], T a multiple of `fast_forms.CHUNK`.
    """
    target, head, index_losses = build(recipe.config, arrays)
    inputs = tokens[:, :-1]
    x = residual(target, inputs)
    law = log_softmax(target.logits(x))
    of_target = -mx.take_along_axis(law, tokens[:, 1:, None], axis=-1).mean()
    of_head = head_losses(recipe.head_depths, head, x, inputs, mx.stop_gradient(law))
    of_index = sum(index_losses, mx.array(0.0)) / max(1, len(index_losses))
    whole = of_target + recipe.head_share * mx.stack(of_head).mean()
    whole = whole + recipe.index_share * of_index
    return [whole, of_target, *of_head, of_index]


def residual(target: HybridModel, tokens: mx.array) -> mx.array:
    """The residual [B, T, W] after the last layer, from empty caches."""
    x = target.embed(tokens)
    for layer in target.layers:
        x = layer(x, tokens, layer.make_cache())
    return x


def head_losses(
    depths: int, head: MTPHead, x: mx.array, tokens: mx.array, law: mx.array
) -> list[mx.array]:
    """Cross entropy of the drafts of every depth against the law [B, T, V] of the target."""
    found: list[mx.array] = []
    for depth in range(1, depths + 1):
        logits, x = head(x[:, :-1], tokens[:, depth:], head.make_cache())
        found.append(-(mx.exp(law[:, depth:]) * log_softmax(logits)).sum(axis=-1).mean())
    return found


def log_softmax(logits: mx.array) -> mx.array:
    """Log-probabilities in float32."""
    wide = logits.astype(mx.float32)
    return wide - mx.logsumexp(wide, axis=-1, keepdims=True)
