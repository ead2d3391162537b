"""Named weights, and how a random model's weights are drawn.

Values come from the counter-based generator Philox 4x64 (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC 2011), keyed by model and tensor name, and are turned into
floats by integer arithmetic and one multiplication. No logarithm, cosine or library
distribution takes part, so every platform and every version of mlx and NumPy gets the same
bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray


class Fill(Enum):
    """How a tensor's values are spread. All are uniform; none leaves a mechanism at rest."""

    MATRIX = "uniform, variance 1 / fan-in"
    LOUD_MATRIX = "uniform, variance 4 / fan-in"
    EMBEDDING = "uniform, variance 1"
    NORM_ABOUT_ZERO = "uniform in -0.4 .. -0.05 and 0.05 .. 0.4, used as 1 + w"
    NORM_ABOUT_ONE = "the same about one"
    CONV = "uniform in -0.7 .. 0.7"
    DECAY = "uniform in -1.5 .. 1.0 (A_log)"
    TIME_STEP = "uniform in -1.0 .. 1.0 (dt_bias)"


_RANGES = {
    Fill.EMBEDDING: (-(3.0**0.5), 3.0**0.5),
    Fill.CONV: (-0.7, 0.7),
    Fill.DECAY: (-1.5, 1.0),
    Fill.TIME_STEP: (-1.0, 1.0),
}


@dataclass(frozen=True)
class Tensor:
    """Shape and fill of one weight. The last axis of a matrix is its fan-in."""

    shape: tuple[int, ...]
    fill: Fill = Fill.MATRIX


class Weights:
    """A view of named arrays under a prefix: `weights.at("mlp")["up_proj.weight"]`."""

    def __init__(self, arrays: Mapping[str, mx.array], prefix: str = "") -> None:
        self._arrays = arrays
        self._prefix = prefix

    def __getitem__(self, name: str) -> mx.array:
        full = self._prefix + name
        try:
            return self._arrays[full]
        except KeyError:
            raise KeyError(f"the checkpoint has no tensor {full!r}") from None

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._arrays

    def at(self, part: str) -> Weights:
        """The same arrays seen from below `part`."""
        return Weights(self._arrays, f"{self._prefix}{part}.")


def prefixed(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with `part.` before every name."""
    return {f"{part}.{name}": tensor for name, tensor in tensors.items()}


def draw(model: str, name: str, tensor: Tensor, seed: int = 0) -> NDArray[np.float32]:
    """Values of one weight, float32 of `tensor.shape`, a function of its arguments alone."""
    series = f"{model}#{seed}" if seed else model
    digest = hashlib.sha256(f"{series}/{name}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8")
    count = int(np.prod(tensor.shape))
    raw = np.asarray(np.random.Philox(key=key).random_raw(count), dtype=np.uint64)
    unit = (raw >> np.uint64(40)).astype(np.float64) * 2.0**-24
    if tensor.fill in (Fill.NORM_ABOUT_ZERO, Fill.NORM_ABOUT_ONE):
        centre = 1.0 if tensor.fill is Fill.NORM_ABOUT_ONE else 0.0
        away = 0.05 + 0.35 * np.abs(2.0 * unit - 1.0)  # never where the norm would be at rest
        values = centre + np.where(unit < 0.5, -away, away)
    else:
        low, high = _range(tensor)
        values = low + (high - low) * unit
    return values.astype(np.float32).reshape(tensor.shape)


def _range(tensor: Tensor) -> tuple[float, float]:
    if tensor.fill in _RANGES:
        return _RANGES[tensor.fill]
    gain = 4.0 if tensor.fill is Fill.LOUD_MATRIX else 1.0
    bound = (3.0 * gain / tensor.shape[-1]) ** 0.5
    return -bound, bound
