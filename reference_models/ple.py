"""Per-layer embedding (PLE): hashed n-grams of token ids added to the residual stream.

    ctx_0 = t_p;  ctx_s = t_{p-s}, or EOS if any of t_{p-s} .. t_{p-1} is EOS
    mixed_n = XOR_{j<n} ctx_j * m_j (int64), n = 2..N;  row = mixed_n mod V_h + offset_h
    s = <norm(W_k E), norm(x)> / sqrt(H) per stream;  s <- sign(s) sqrt(max(|s|, 1e-6))
    V = sigmoid(s) * W_v E;  PLE = V + silu(conv(norm(V)))

with a depthwise convolution of kernel Kp and dilation N, and multipliers from splitmix64
(Steele et al., "Fast splittable pseudorandom number generators", 2014). (Hugging Face
`Qwen4ExpTextPLELayer`.)

State, in slots 2 and 3 of the layer's `ArraysCache`: the last N-1 token ids [B, N-1] int64,
EOS at the start; the last (Kp-1)*N normed rows [B, (Kp-1)*N, W], zero at the start.
"""

from __future__ import annotations

import math

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from reference_models.config import HybridConfig
from reference_models.mlp import linear
from reference_models.norms import rms_norm, silu
from reference_models.weights import Fill, Tensor, Weights, prefixed

NGRAM, PLE_CONV = 2, 3
_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _splitmix64(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _primes_from(start: int, count: int) -> list[int]:
    found: list[int] = []
    candidate = max(2, start)
    while len(found) < count:
        if all(candidate % divisor for divisor in range(2, math.isqrt(candidate) + 1)):
            found.append(candidate)
        candidate += 1
    return found


class NGramHash:
    """Where every n-gram of one PLE layer lives in its embedding table."""

    def __init__(self, config: HybridConfig, ple_index: int) -> None:
        half = max(1, (2**63 - 1) // config.vocab_size // 2)
        base = config.seed + 10007 * ple_index
        self.multipliers = [
            2 * (_splitmix64((base + _GAMMA * (j + 1)) & _MASK) % half) + 1
            for j in range(config.ngram_size)
        ]
        heads = config.ngram_heads
        primes = _primes_from(config.ngram_vocab_size_base, heads * (ple_index + 1))
        self.sizes = primes[heads * ple_index :]
        self.offsets = [sum(self.sizes[:h]) for h in range(heads)]
        divisor = config.make_ngram_vocab_size_divisible_by
        self.rows = -(-sum(self.sizes) // divisor) * divisor
        self._config = config

    def __call__(self, history: mx.array) -> mx.array:
        """Table rows for history [B, N-1+T] int64: int64 [B, T, heads]."""
        order = self._config.ngram_size
        length = history.shape[1] - (order - 1)
        current = history[:, order - 1 :]
        cut = mx.zeros(current.shape, mx.bool_)
        mixed = current * self.multipliers[0]
        rows = []
        for shift in range(1, order):
            earlier = history[:, order - 1 - shift : order - 1 - shift + length]
            cut = cut | (earlier == self._config.eos_token_id)
            context = mx.where(cut, self._config.eos_token_id, earlier)
            mixed = mixed ^ (context * self.multipliers[shift])
            rows.append(self._rows(mixed, shift - 1))
        return mx.concatenate(rows, axis=-1)

    def _rows(self, mixed: mx.array, group: int) -> mx.array:
        heads = slice(
            group * self._config.heads_per_ngram, (group + 1) * self._config.heads_per_ngram
        )
        sizes = mx.array(self.sizes[heads], mx.int64)
        return mixed[..., None] % sizes + mx.array(self.offsets[heads], mx.int64)


class PerLayerEmbedding:
    """One PLE, at the start of its layer."""

    def __init__(self, config: HybridConfig, weights: Weights, ple_index: int) -> None:
        self._config = config
        self._weights = weights
        self._hash = NGramHash(config, ple_index)
        self._table = weights["ple_embedding.ngram_embedding.weight"]
        self._conv = weights["conv1d.weight"][:, 0, :].T  # [Kp, W]

    @staticmethod
    def tensors(config: HybridConfig, ple_index: int) -> dict[str, Tensor]:
        """Names and shapes of the weights, the table in one piece."""
        wide, embed = config.wide_size, config.ple_embed_dim
        rows = NGramHash(config, ple_index).rows
        norms = ("norm_key", "norm_query", "norm_conv")
        return {
            "ple_embedding.ngram_embedding.weight": Tensor(
                (rows, embed // config.ngram_heads), Fill.EMBEDDING
            ),
            "key_proj.weight": Tensor((wide, embed), Fill.LOUD_MATRIX),
            "value_proj.weight": Tensor((config.hidden_size, embed), Fill.LOUD_MATRIX),
            "conv1d.weight": Tensor((wide, 1, config.ple_conv_kernel_size), Fill.CONV),
            **{f"{name}.weight": Tensor((wide,), Fill.NORM_ABOUT_ZERO) for name in norms},
        }

    def __call__(
        self,
        x: mx.array,
        tokens: mx.array,
        cache: ArraysCache,
        states: list[tuple[mx.array, mx.array]] | None = None,
    ) -> tuple[mx.array, mx.array]:
        """Embed x [B, T, W] and tokens [B, T]; advances both slots by T positions.

        Returns:
            The sum's second term [B, T, W], and the normed rows [B, T, W] that entered the
            convolution's state. `states`, if given, receives (ids, rows) after every position.
        """
        history = self._history(tokens, cache)
        value = self._gated_value(x, self._hash(history))
        w, c = self._weights, self._config
        rows = rms_norm(value, w["norm_conv.weight"], c.rms_norm_eps, c.hc_count)
        past = self._past_rows(rows, cache)
        self._store(history, past, tokens.shape[1], cache, states)
        return value + silu(self._convolve(past, tokens.shape[1])), rows

    def advance(self, rows: mx.array, tokens: mx.array, cache: ArraysCache) -> None:
        """Advance both slots by T positions, given the normed rows `__call__` returned."""
        past = self._past_rows(rows, cache)
        self._store(self._history(tokens, cache), past, tokens.shape[1], cache, None)

    def _history(self, tokens: mx.array, cache: ArraysCache) -> mx.array:
        before = cache[NGRAM]
        if before is None:
            shape = (tokens.shape[0], self._config.ngram_size - 1)
            before = mx.full(shape, self._config.eos_token_id, mx.int64)
        return mx.concatenate([before, tokens.astype(mx.int64)], axis=1)

    def _past_rows(self, rows: mx.array, cache: ArraysCache) -> mx.array:
        before = cache[PLE_CONV]
        if before is None:
            size = (self._config.ple_conv_kernel_size - 1) * self._config.ngram_size
            before = mx.zeros((rows.shape[0], size, rows.shape[2]), rows.dtype)
        return mx.concatenate([before, rows], axis=1)

    def _gated_value(self, x: mx.array, rows: mx.array) -> mx.array:
        w, c = self._weights, self._config
        embedded = self._table[rows].reshape(*rows.shape[:2], -1)
        streams = (*rows.shape[:2], c.hc_count, c.hidden_size)
        key = rms_norm(
            linear(embedded, w["key_proj.weight"]),
            w["norm_key.weight"],
            c.rms_norm_eps,
            c.hc_count,
        ).reshape(streams)
        query = rms_norm(x, w["norm_query.weight"], c.rms_norm_eps, c.hc_count).reshape(streams)
        score = (key * query).sum(axis=-1, keepdims=True) * c.hidden_size**-0.5
        score = mx.sign(score) * mx.sqrt(mx.maximum(mx.abs(score), 1e-6))
        value = linear(embedded, w["value_proj.weight"])[:, :, None]
        return (mx.sigmoid(score) * value).reshape(*rows.shape[:2], -1)

    def _convolve(self, past: mx.array, length: int) -> mx.array:
        """Dilated depthwise convolution of the last T rows of past [B, (Kp-1)*N+T, W]."""
        dilation = self._config.ngram_size
        out = past[:, :length] * self._conv[0]
        for j in range(1, self._config.ple_conv_kernel_size):
            out = out + past[:, j * dilation : j * dilation + length] * self._conv[j]
        return out

    def _store(
        self,
        history: mx.array,
        past: mx.array,
        length: int,
        cache: ArraysCache,
        states: list[tuple[mx.array, mx.array]] | None,
    ) -> None:
        ids, size = self._config.ngram_size - 1, past.shape[1] - length
        if states is not None:
            for t in range(1, length + 1):
                states.append((history[:, t : t + ids], past[:, t : t + size]))
        cache[NGRAM] = history[:, length:]
        cache[PLE_CONV] = past[:, length:]


def shard_names(config: HybridConfig) -> list[str]:
    """Names under which a checkpoint stores the parts of one n-gram table."""
    part = "ple_embedding.ngram_embedding.shard_{}.weight"
    return [part.format(i) for i in range(config.split_ngram_parts)]


def tensors_at(layer: str, config: HybridConfig, ple_index: int) -> dict[str, Tensor]:
    """The tensors of the PLE of one layer, under their full names."""
    return prefixed(f"{layer}.ple", PerLayerEmbedding.tensors(config, ple_index))
