"""GatedDeltaNet against its recurrence, step by step in float64."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache

from reference_models.config import HybridConfig
from reference_models.gated_delta import GatedDeltaNet
from reference_models.weights import Weights
from tests.models.formulas import (
    TINY,
    TOLERANCE,
    Array,
    drawn,
    gap,
    numbers,
    random,
    sigmoid,
    silu,
    weight,
)

STEPS = 7


def _expected(c: HybridConfig, w: Weights, x: Array) -> tuple[Array, Array, Array]:
    """Output [T, H], last rows of the convolution [Kc-1, C], state [Hv, Dv, Dk]."""
    hk, hv = c.linear_num_key_heads, c.linear_num_value_heads
    dk, dv, kernel = c.linear_key_head_dim, c.linear_value_head_dim, c.linear_conv_kernel_dim
    qkv, z, b, a = (x @ weight(w, f"in_proj_{n}.weight").T for n in ("qkv", "z", "b", "a"))
    padded = np.concatenate([np.zeros((kernel - 1, qkv.shape[1])), qkv])
    conv = weight(w, "conv1d.weight")[:, 0]
    state, rows = np.zeros((hv, dv, dk)), list[Array]()
    for t in range(len(x)):
        u = silu((conv.T * padded[t : t + kernel]).sum(0))
        q, k = u[: hk * dk].reshape(hk, dk), u[hk * dk : 2 * hk * dk].reshape(hk, dk)
        v = u[2 * hk * dk :].reshape(hv, dv)
        q = q / np.sqrt((q * q).sum(-1, keepdims=True) + 1e-6) / np.sqrt(dk)
        k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
        beta = sigmoid(b[t])
        decay = np.exp(-np.exp(weight(w, "A_log")) * np.log1p(np.exp(a[t] + weight(w, "dt_bias"))))
        y = np.zeros((hv, dv))
        for h in range(hv):
            key, query = k[h * hk // hv], q[h * hk // hv]
            state[h] *= decay[h]
            state[h] += beta[h] * np.outer(v[h] - state[h] @ key, key)
            y[h] = state[h] @ query
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + c.rms_norm_eps) * weight(w, "norm.weight")
        gate = silu if c.output_gate_type == "silu" else sigmoid
        rows.append((y * gate(z[t].reshape(hv, dv))).reshape(-1) @ weight(w, "out_proj.weight").T)
    return np.stack(rows), padded[len(x) :], state


@pytest.mark.parametrize("gate", ["silu", "sigmoid"])
def test_output(gate: str) -> None:
    """Outputs are those of decay first, write, then read after the write."""
    config = replace(TINY, output_gate_type=gate)
    weights = drawn(GatedDeltaNet.tensors(config))
    x = random(1, STEPS, config.hidden_size)
    y = GatedDeltaNet(config, weights)(x, ArraysCache(size=2))
    assert gap(y[0], _expected(config, weights, numbers(x)[0])[0]) < TOLERANCE


@pytest.mark.parametrize("split", [1, 2, 5])
def test_state(split: int) -> None:
    """After two calls the state is that of the recurrence, and the window the last raw rows."""
    weights = drawn(GatedDeltaNet.tensors(TINY))
    x, cache = random(1, STEPS, TINY.hidden_size), ArraysCache(size=2)
    mixer = GatedDeltaNet(TINY, weights)
    mixer(x[:, :split], cache)
    mixer(x[:, split:], cache)
    _, window, state = _expected(TINY, weights, numbers(x)[0])
    assert gap(cache[0][0], window) < TOLERANCE
    assert gap(cache[1][0], state) < TOLERANCE


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_the_state_is_float32(dtype: mx.Dtype) -> None:
    """The recurrent state is float32 whatever the model's dtype; the window is of that dtype."""
    arrays = {
        name: mx.zeros(tensor.shape, dtype) + 0.1
        for name, tensor in GatedDeltaNet.tensors(TINY).items()
    }
    cache = ArraysCache(size=2)
    y = GatedDeltaNet(TINY, Weights(arrays))(mx.ones((1, 2, TINY.hidden_size), dtype), cache)
    assert (y.dtype, cache[0].dtype, cache[1].dtype) == (dtype, dtype, mx.float32)
