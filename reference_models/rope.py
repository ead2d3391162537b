"""Rotary position embedding on the first dimensions of a head, half-split.

With R rotated dimensions, pair i is (x_i, x_{i + R/2}) and turns by
`position * theta^(-2i/R)` (Su et al., "RoFormer", 2021; the half-split order is Hugging
Face's `rotate_half`). For text all three sections of a multimodal rope carry the same
position, so `mrope_section` makes no difference.
"""

from __future__ import annotations

import mlx.core as mx


def rotate(x: mx.array, positions: mx.array, rotary_dim: int, theta: float) -> mx.array:
    """Turn `x` [B, heads, T, D] by `positions` [T] (int); keeps shape and dtype."""
    half = rotary_dim // 2
    frequencies = theta ** (-mx.arange(half, dtype=mx.float32) / half)
    angles = positions.astype(mx.float32)[:, None] * frequencies  # [T, R/2]
    cos, sin = mx.cos(angles), mx.sin(angles)
    wide = x.astype(mx.float32)
    first, second = wide[..., :half], wide[..., half:rotary_dim]
    turned = [first * cos - second * sin, second * cos + first * sin, wide[..., rotary_dim:]]
    return mx.concatenate(turned, axis=-1).astype(x.dtype)
