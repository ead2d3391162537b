"""Root-mean-square norms.

    y = x * rsqrt(mean(x^2) + eps) * (1 + w)

computed in float32, with `w` stored about zero (Hugging Face `Qwen4ExpTextRMSNorm`). The
grouped form takes the mean over each of several equal parts of the last axis. The
GatedDeltaNet's gated norm stores `w` about one and multiplies by an activated gate
(`Qwen4ExpTextRMSNormGated`).
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx


def rms_norm(x: mx.array, weight: mx.array, eps: float, groups: int = 1) -> mx.array:
    """Normalise the last axis of `x` [..., N] in `groups` parts; weight [N]; keeps the dtype."""
    wide = x.astype(mx.float32).reshape(*x.shape[:-1], groups, -1)
    wide = wide * mx.rsqrt(wide.square().mean(axis=-1, keepdims=True) + eps)
    return (wide.reshape(x.shape) * (1.0 + weight.astype(mx.float32))).astype(x.dtype)


def gated_rms_norm(
    x: mx.array,
    gate: mx.array,
    weight: mx.array,
    eps: float,
    activation: Callable[[mx.array], mx.array],
) -> mx.array:
    """Normalise `x` [..., D], scale by `weight` [D] and by `activation(gate)`; gate as x."""
    wide = x.astype(mx.float32)
    wide = wide * mx.rsqrt(wide.square().mean(axis=-1, keepdims=True) + eps)
    wide = wide * weight.astype(mx.float32)
    return (wide * activation(gate.astype(mx.float32))).astype(gate.dtype)


def silu(x: mx.array) -> mx.array:
    """`x * sigmoid(x)`."""
    return x * mx.sigmoid(x)


def l2_norm(x: mx.array) -> mx.array:
    """`x * rsqrt(sum(x^2) + 1e-6)` over the last axis, in float32.

    The epsilon is added to the sum, as Hugging Face and FLA do; adding it to the mean makes
    it D times larger and changes small keys.
    """
    wide = x.astype(mx.float32)
    return wide * mx.rsqrt(wide.square().sum(axis=-1, keepdims=True) + 1e-6)
