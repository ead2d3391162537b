"""Where training starts: drawn as the zoo's weights are, and spread as training likes it.

The zoo's draws keep every mechanism at work in a random model. A model that learns starts
quieter: norms at rest, small embeddings and outputs, recurrences that remember (A in 1..16 and
time steps in 0.001..0.1, as Mamba-2 and Hugging Face's GatedDeltaNet start).
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference_models.config import HybridConfig
from reference_models.weights import Fill, Tensor, draw
from reference_models.zoo import tensors_of

_QUIET = ("o_proj.weight", "out_proj.weight", "down_proj.weight", "experts.down_proj")
_SCALES = {Fill.EMBEDDING: 0.3, Fill.MATRIX: 1.0, Fill.LOUD_MATRIX: 0.5, Fill.CONV: 1.0}


def start(name: str, config: HybridConfig, seed: int) -> dict[str, mx.array]:
    """Every weight of target and head, float32; a function of the arguments alone."""
    source = f"{name}/{seed}"
    return {n: mx.array(_spread(n, t, draw(source, n, t))) for n, t in tensors_of(config).items()}


def _spread(name: str, tensor: Tensor, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
    if tensor.fill in _SCALES:
        quiet = 0.3 if name.endswith(_QUIET) else 1.0
        return drawn * np.float32(_SCALES[tensor.fill] * quiet)
    if tensor.fill is Fill.DECAY:  # -1.5 .. 1.0 to the logarithm of 1 .. 16
        return ((drawn + 1.5) / 2.5 * np.log(16.0)).astype(np.float32)
    if tensor.fill is Fill.TIME_STEP:  # -1 .. 1 to the inverse softplus of 0.001 .. 0.1
        return np.log(np.expm1(10.0 ** (drawn.astype(np.float64) - 2.0))).astype(np.float32)
    return np.full_like(drawn, 1.0 if tensor.fill is Fill.NORM_ABOUT_ONE else 0.0)
