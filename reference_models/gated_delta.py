"""GatedDeltaNet: a short convolution and a gated delta-rule recurrence.

    u_t = silu(sum_j w_j * x_{t-(Kc-1)+j})                     depthwise, causal, x = W_qkv h
    q, k = l2norm(u^q) / sqrt(Dk), l2norm(u^k)                 per head
    beta = sigmoid(W_b h);  g = exp(-exp(A_log) * softplus(W_a h + dt_bias))
    S <- g S;  S <- S + beta (v - S k) k^T;  y = S q           decay first, read after write
    out = W_out (norm(y) * act(W_z h))

(Yang et al., "Gated Delta Networks", 2024; Hugging Face `Qwen3_5GatedDeltaNet`.) Value head
h reads key head h // (Hv / Hk).

State, in mlx-lm's `ArraysCache`: slot 0 the last Kc-1 raw rows of x [B, Kc-1, C]; slot 1
S [B, Hv, Dv, Dk] float32. S cannot be cut back: undoing a step needs the state before it
and the inputs since. `project` computes those inputs from the hidden states, `scan` is all
that touches the state.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from reference_models.config import HybridConfig
from reference_models.mlp import linear
from reference_models.norms import gated_rms_norm, l2_norm, silu
from reference_models.weights import Fill, Tensor, Weights

CONV, RECURRENT = 0, 1


class Projections(NamedTuple):
    """Per-position inputs: qkv [B, T, C]; z [B, T, Hv*Dv]; b, a [B, T, Hv]. z feeds no state."""

    qkv: mx.array
    z: mx.array
    b: mx.array
    a: mx.array


class GatedDeltaNet:
    """One GatedDeltaNet mixer."""

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights
        self._gate = mx.sigmoid if config.output_gate_type == "sigmoid" else silu
        self._conv = weights["conv1d.weight"][:, 0, :].T  # [Kc, C]

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Names and shapes of the weights, the convolution as Hugging Face stores it."""
        h, c, hv = config.hidden_size, config.conv_channels, config.linear_num_value_heads
        dv, kernel = config.linear_value_head_dim, config.linear_conv_kernel_dim
        return {
            "in_proj_qkv.weight": Tensor((c, h), Fill.LOUD_MATRIX),
            "in_proj_z.weight": Tensor((hv * dv, h), Fill.LOUD_MATRIX),
            "in_proj_b.weight": Tensor((hv, h)),
            "in_proj_a.weight": Tensor((hv, h)),
            "conv1d.weight": Tensor((c, 1, kernel), Fill.CONV),
            "A_log": Tensor((hv,), Fill.DECAY),
            "dt_bias": Tensor((hv,), Fill.TIME_STEP),
            "norm.weight": Tensor((dv,), Fill.NORM_ABOUT_ONE),
            "out_proj.weight": Tensor((h, hv * dv), Fill.LOUD_MATRIX),
        }

    def __call__(self, x: mx.array, cache: ArraysCache) -> mx.array:
        """Map x [B, T, H] to [B, T, H]; advance the state by T positions."""
        projections = self.project(x)
        return self.finish(self.scan(projections, cache), projections)

    def project(self, x: mx.array) -> Projections:
        """The inputs of `scan` for x [B, T, H]; touches no state."""
        w = self._weights
        return Projections(
            *(linear(x, w[f"in_proj_{part}.weight"]) for part in Projections._fields)
        )

    def scan(
        self,
        inputs: Projections,
        cache: ArraysCache,
        states: list[tuple[mx.array, mx.array]] | None = None,
    ) -> mx.array:
        """Advance the state by T positions and return y [B, T, Hv, Dv] in float32.

        Args:
            inputs: what `project` returned, or the first rows of it.
            cache: updated in place.
            states: if given, receives (conv window, S) after every position.
        """
        batch, length, _ = inputs.qkv.shape
        window, state = self._before(batch, inputs.qkv.dtype, cache)
        history = mx.concatenate([window, inputs.qkv], axis=1)
        q, k, v = self._convolve(history, length)
        beta = mx.sigmoid(inputs.b.astype(mx.float32))
        decay = self._decay(inputs.a)
        # One position a step, shaped to meet S [.., Dv, Dk]: keys as rows, values as columns.
        rows_of = (x.swapaxes(0, 1)[..., None, :] for x in (q, k))
        columns_of = (x.swapaxes(0, 1)[..., None] for x in (v, beta[..., None], decay[..., None]))
        steps = [mx.split(x, length) for x in (*rows_of, *columns_of)]
        outputs = []
        for t, (q_t, k_t, v_t, beta_t, decay_t) in enumerate(zip(*steps, strict=True), start=1):
            state = state * decay_t
            delta = beta_t * (v_t - (state * k_t).sum(axis=-1, keepdims=True))
            state = state + delta * k_t
            outputs.append((state * q_t).sum(axis=-1))
            if states is not None:
                states.append((history[:, t : t + window.shape[1]], state[0]))
        cache[CONV] = history[:, length:]
        cache[RECURRENT] = state[0]
        return mx.concatenate(outputs).swapaxes(0, 1)

    def finish(self, y: mx.array, inputs: Projections) -> mx.array:
        """Gate, normalise and project y [B, T, Hv, Dv] to [B, T, H]."""
        w, c = self._weights, self._config
        gate = inputs.z.reshape(y.shape)
        y = gated_rms_norm(y, gate, w["norm.weight"], c.rms_norm_eps, self._gate)
        return linear(y.reshape(*y.shape[:2], -1), w["out_proj.weight"])

    def _before(self, batch: int, dtype: mx.Dtype, cache: ArraysCache) -> tuple[mx.array, mx.array]:
        c = self._config
        window, state = cache[CONV], cache[RECURRENT]
        if window is None:
            window = mx.zeros((batch, c.linear_conv_kernel_dim - 1, c.conv_channels), dtype)
        if state is None:
            shape = (batch, c.linear_num_value_heads, c.linear_value_head_dim)
            state = mx.zeros((*shape, c.linear_key_head_dim), mx.float32)
        return window, state

    def _convolve(self, history: mx.array, length: int) -> tuple[mx.array, mx.array, mx.array]:
        """Convolved q, k [B, T, Hv, Dk] and v [B, T, Hv, Dv], float32, of the last T rows."""
        c = self._config
        wide, kernel = history.astype(mx.float32), self._conv.astype(mx.float32)
        u = wide[:, :length] * kernel[0]
        for j in range(1, c.linear_conv_kernel_dim):
            u = u + wide[:, j : j + length] * kernel[j]
        u = silu(u)
        hk, hv, dk = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_key_head_dim
        q, k, v = mx.split(u, [hk * dk, 2 * hk * dk], axis=-1)
        heads = (*u.shape[:2], hk, dk)
        q = mx.repeat(l2_norm(q.reshape(heads)) * dk**-0.5, hv // hk, axis=2)
        k = mx.repeat(l2_norm(k.reshape(heads)), hv // hk, axis=2)
        return q, k, v.reshape(*u.shape[:2], hv, -1)

    def _decay(self, a: mx.array) -> mx.array:
        """exp(-exp(A_log) softplus(a + dt_bias)), float32 [B, T, Hv]."""
        w = self._weights
        rate = mx.exp(w["A_log"].astype(mx.float32))
        shifted = a.astype(mx.float32) + w["dt_bias"].astype(mx.float32)
        return mx.exp(-rate * mx.logaddexp(shifted, mx.array(0.0)))
