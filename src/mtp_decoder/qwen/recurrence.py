"""GatedDeltaNet's recurrence over any number of positions in one CUDA kernel.

mlx-lm has a kernel for Metal; elsewhere it steps through operations, about thirty a position, and
on CUDA starting them is what a pass of a few rows spends its time on (`docs/gpu.md`). This kernel
does the same arithmetic in the same order, so that it has the bits of those operations: a product
and a sum rounded apart but for the update of the state, which MLX's compiled operation fuses; a
row summed as MLX's reduction sums it, four neighbours a lane and then lanes in halves.

That order is MLX's own and may change with it. So the kernel is taken only where it was seen to
have these bits: at first use of a shape both are run on random inputs, and one bit of difference
leaves the shape to mlx-lm. Formula: Yang et al., "Gated Delta Networks", 2024, eq. 10.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import mlx.core as mx
from mlx_lm.models.gated_delta import compute_g, gated_delta_ops, gated_delta_update

from mtp_decoder.row_exact import same_bits

_LANES, _ROWS = 32, 4
"""Lanes that share a row of the state, and rows of it that share a block."""
_NEIGHBOURS = 4
"""Values of a row that one lane holds."""
_POSITIONS = 16
"""Positions that a shape is tried on."""

_SOURCE = """
    const int lane = threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int batch = blockIdx.z / Hv, head = blockIdx.z % Hv, key_head = head / (Hv / Hk);
    const int positions = q_shape[1], first = lane * HELD;
    const bool holds = first < Dk;

    auto halves = [](float sum) {
      for (int apart = 16; apart > 0; apart /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, apart));
      return sum;
    };

    const size_t at_state = ((size_t)blockIdx.z * Dv + row) * Dk + first;
    float held[HELD], key[HELD];
    for (int i = 0; i < HELD; ++i) held[i] = holds ? state[at_state + i] : 0.0f;

    for (int t = 0; t < positions; ++t) {
      const size_t position = (size_t)batch * positions + t;
      const size_t at_key = (position * Hk + key_head) * Dk + first;
      const size_t at_head = position * Hv + head;

      float remembered = 0.0f;
      for (int i = 0; i < HELD; ++i) {
        key[i] = holds ? static_cast<float>(k[at_key + i]) : 0.0f;
        held[i] = __fmul_rn(held[i], g[at_head]);
        remembered = __fadd_rn(remembered, __fmul_rn(held[i], key[i]));
      }
      const float value = static_cast<float>(v[at_head * Dv + row]);
      const float wrong = __fsub_rn(value, halves(remembered));
      const float delta = __fmul_rn(wrong, static_cast<float>(beta[at_head]));

      float read = 0.0f;
      for (int i = 0; i < HELD; ++i) {
        const float query = holds ? static_cast<float>(q[at_key + i]) : 0.0f;
        held[i] = __fmaf_rn(key[i], delta, held[i]);
        read = __fadd_rn(read, __fmul_rn(held[i], query));
      }
      read = halves(read);
      if (lane == 0) y[at_head * Dv + row] = static_cast<Out>(read);
    }
    for (int i = 0; i < HELD; ++i)
      if (holds) after[at_state + i] = held[i];
"""


class Step(NamedTuple):
    """q, k [B, T, Hk, Dk]; v [B, T, Hv, Dv]; g, beta [B, T, Hv]; state [B, Hv, Dv, Dk].

    g and state are float32.
    """

    q: mx.array
    k: mx.array
    v: mx.array
    g: mx.array
    beta: mx.array
    state: mx.array


def update(
    mixer: Any, q: mx.array, k: mx.array, v: mx.array, a: mx.array, b: mx.array, state: Any
) -> tuple[mx.array, mx.array]:
    """What is read at every position [B, T, Hv, Dv], and the state after the last one.

    Args:
        mixer: mlx-lm's module, for A and the bias of dt.
        q: queries [B, T, Hk, Dk], normalised and scaled.
        k: keys, likewise.
        v: values [B, T, Hv, Dv].
        a: inputs of the decay [B, T, Hv].
        b: inputs of beta [B, T, Hv].
        state: [B, Hv, Dv, Dk] in float32, or None for zeros.
    """
    if has_kernel(q, v):
        if state is None:
            state = mx.zeros((q.shape[0], *v.shape[2:], q.shape[3]))
        step = Step(q, k, v, compute_g(mixer.A_log, a, mixer.dt_bias), mx.sigmoid(b), state)
        sizes = q.shape[2], v.shape[2], q.shape[3], v.shape[3]
        if has_the_bits(*sizes, q.dtype, b.dtype, batch=q.shape[0]):
            return run(step)
    return gated_delta_update(
        q, k, v, a, b, mixer.A_log, mixer.dt_bias, state, None, use_kernel=not mixer.training
    )


def has_kernel(q: mx.array, v: mx.array) -> bool:
    """Whether the kernel can be asked for this shape, on this device."""
    fits = q.shape[3] <= _LANES * _NEIGHBOURS and q.shape[3] % _NEIGHBOURS == 0
    on_cuda = mx.cuda.is_available() and mx.default_device() == mx.gpu
    return on_cuda and fits and v.shape[3] % _ROWS == 0


@cache
def has_the_bits(
    key_heads: int,
    heads: int,
    key_dim: int,
    dim: int,
    dtype: mx.Dtype,
    beta: mx.Dtype,
    batch: int = 1,
) -> bool:
    """Whether the kernel has the bits of mlx-lm's operations for this shape.

    One that the device cannot compile or start has none.
    """
    step = random_step(key_heads, heads, key_dim, dim, dtype, beta, batch=batch)
    try:
        ours = run(step)
        mx.eval(ours)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # none of mlx's
            raise
        return False
    return all(map(same_bits, ours, gated_delta_ops(*step)))


def random_step(
    key_heads: int,
    heads: int,
    key_dim: int,
    dim: int,
    dtype: mx.Dtype,
    beta: mx.Dtype,
    positions: int = _POSITIONS,
    batch: int = 1,
) -> Step:
    """Inputs of the sizes that a model has, the same every time."""
    keys = iter(mx.random.split(mx.random.key(0), 6))
    scale = key_dim**-0.5
    qk = (batch, positions, key_heads, key_dim)
    return Step(
        (scale**2 * mx.random.normal(qk, key=next(keys))).astype(dtype),
        (scale * mx.random.normal(qk, key=next(keys))).astype(dtype),
        mx.random.normal((batch, positions, heads, dim), key=next(keys)).astype(dtype),
        mx.random.uniform(shape=(batch, positions, heads), key=next(keys)),
        mx.random.uniform(shape=(batch, positions, heads), key=next(keys)).astype(beta),
        mx.random.normal((batch, heads, dim, key_dim), key=next(keys)),
    )


def run(step: Step) -> tuple[mx.array, mx.array]:
    """The kernel alone, as `update`."""
    batch, _, key_heads, key_dim = step.q.shape
    heads, dim = step.v.shape[2:]
    sizes = {"Hk": key_heads, "Hv": heads, "Dk": key_dim, "Dv": dim, "HELD": _NEIGHBOURS}
    y, after = _kernel()(
        inputs=list(step),
        template=[("Out", step.q.dtype), *sizes.items()],
        grid=(_LANES, dim, batch * heads),
        threadgroup=(_LANES, _ROWS, 1),
        output_shapes=[step.v.shape, step.state.shape],
        output_dtypes=[step.q.dtype, mx.float32],
    )
    return y, after


@cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel(
        name="gated_delta_rows",
        input_names=list(Step._fields),
        output_names=["y", "after"],
        source=_SOURCE,
    )
