"""The mechanisms' formulas once more, in NumPy float64, written as directly as they can be.

They are another arithmetic than the models' float32, so they are compared within 1e-5.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference_models.config import HybridConfig
from reference_models.weights import Tensor, Weights, draw

Array = NDArray[np.float64]
TOLERANCE = 1e-5


def numbers(array: mx.array) -> Array:
    """An mlx array in float64."""
    return np.array(array.astype(mx.float32)).astype(np.float64)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> mx.array:
    """Normal numbers, the same in every run."""
    return mx.array(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * scale)


def drawn(tensors: dict[str, Tensor]) -> Weights:
    """Weights of a mechanism by itself."""
    return Weights({name: mx.array(draw("alone", name, t)) for name, t in tensors.items()})


def gap(found: mx.array, expected: Array) -> float:
    """The largest distance, in units of the largest expected magnitude or of 1."""
    assert found.shape == expected.shape
    return float(np.abs(numbers(found) - expected).max() / max(1.0, np.abs(expected).max()))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    """X sigmoid(x)."""
    return x * sigmoid(x)


def rms_norm(x: Array, weight: Array, groups: int = 1, eps: float = 1e-6) -> Array:
    """X over the root of its mean square in each group, times 1 + weight."""
    parts = [p / np.sqrt((p * p).mean(-1, keepdims=True) + eps) for p in np.split(x, groups, -1)]
    return np.concatenate(parts, -1) * (1.0 + weight)


def rotate(x: Array, position: int, dims: int, theta: float) -> Array:
    """One vector [D], pair (i, i + dims/2) turned by position * theta^(-2i/dims)."""
    out = x.copy()
    for i in range(dims // 2):
        angle = position * theta ** (-2 * i / dims)
        a, b = x[i], x[i + dims // 2]
        out[i] = a * np.cos(angle) - b * np.sin(angle)
        out[i + dims // 2] = b * np.cos(angle) + a * np.sin(angle)
    return out


def mlp(x: Array, gate: Array, up: Array, down: Array) -> Array:
    """down(silu(gate x) * up x)."""
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def weight(weights: Weights, name: str) -> Array:
    """One weight in float64."""
    return numbers(weights[name])


TINY = HybridConfig("hybrid_reference", ("linear_attention",))
