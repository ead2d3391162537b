"""The parts of mlx-lm's GatedDeltaNet between projection and output.

mlx-lm computes a mixer in one call. For a tape the inputs of its state are needed by
themselves, so this runs the same submodules and the same mlx-lm functions in the same order (on
CUDA the recurrence is a kernel with their bits); the suite holds the result bit-equal to the one
call. Formulas: Yang et al., "Gated Delta Networks", 2024.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import ArraysCache
from mlx_lm.models.gated_delta import normalize_qk

from mtp_decoder.qwen.recurrence import update

CONV, RECURRENT = 0, 1


class Projections(NamedTuple):
    """Inputs of one call: qkv [B, T, C]; z [B, T, Hv, Dv]; b, a [B, T, Hv]."""

    qkv: mx.array
    z: mx.array
    b: mx.array
    a: mx.array


def project(mixer: Any, x: mx.array) -> Projections:
    """What the mixer projects x [B, T, H] to; touches no state."""
    batch, length, _ = x.shape
    if hasattr(mixer, "in_proj_qkvz"):  # qwen3_next: fused by key head
        q, k, v, z, b, a = mixer.fix_query_key_value_ordering(
            mixer.in_proj_qkvz(x), mixer.in_proj_ba(x)
        )
        qkv = mx.concatenate([part.reshape(batch, length, -1) for part in (q, k, v)], axis=-1)
        return Projections(qkv, z, b, a)
    z = mixer.in_proj_z(x).reshape(batch, length, mixer.num_v_heads, mixer.head_v_dim)
    return Projections(mixer.in_proj_qkv(x), z, mixer.in_proj_b(x), mixer.in_proj_a(x))


def scan(
    mixer: Any,
    inputs: Projections,
    cache: ArraysCache,
    states: list[tuple[mx.array, ...]] | None = None,
) -> mx.array:
    """Advance the state by T positions and return what was read [B, T, Hv, Dv].

    `states`, if given, receives (conv window, recurrent state) after every position; the
    recurrence then runs one position a call.
    """
    batch, length, _ = inputs.qkv.shape
    window = cache[CONV]
    if window is None:
        shape = (batch, mixer.conv_kernel_size - 1, mixer.conv_dim)
        window = mx.zeros(shape, inputs.qkv.dtype)
    history = mx.concatenate([window, inputs.qkv], axis=1)
    q, k, v = _convolve(mixer, history, length)
    a, b, state = inputs.a, inputs.b, cache[RECURRENT]
    if states is None:
        y, state = update(mixer, q, k, v, a, b, state)
    else:
        rows: list[mx.array] = []
        for end in range(1, length + 1):
            q_t, k_t, v_t, a_t, b_t = (part[:, end - 1 : end] for part in (q, k, v, a, b))
            y, state = update(mixer, q_t, k_t, v_t, a_t, b_t, state)
            rows.append(y)
            states.append((mx.contiguous(history[:, end : end + window.shape[1]]), state))
        y = mx.concatenate(rows, axis=1)
    cache[CONV] = mx.contiguous(history[:, length:])
    cache[RECURRENT] = state
    return y


def finish(mixer: Any, y: mx.array, inputs: Projections) -> mx.array:
    """Gate, normalise and project y [B, T, Hv, Dv] to [B, T, H]."""
    return mixer.out_proj(mixer.norm(y, inputs.z).reshape(*y.shape[:2], -1))


def _convolve(mixer: Any, history: mx.array, length: int) -> tuple[mx.array, ...]:
    """q, k [B, T, Hk, Dk], normalised, and v [B, T, Hv, Dv]."""
    u = nn.silu(mixer.conv1d(history))
    q, k, v = mx.split(u, [mixer.key_dim, 2 * mixer.key_dim], axis=-1)
    keys = (history.shape[0], length, mixer.num_k_heads, mixer.head_k_dim)
    q, k = normalize_qk(
        q.reshape(keys), k.reshape(keys), inv_scale=mixer.head_k_dim**-0.5, eps=1e-6
    )
    return q, k, v.reshape(*keys[:2], mixer.num_v_heads, mixer.head_v_dim)
