"""The specification's models, quick enough to be trained.

A model is the reference model itself, built on the arrays that are trained, with three parts in
a form that suits hundreds of positions at once. Each computes what the plain form does, up to
rounding; tests hold them to it.

- GatedDeltaNet, a chunk of C positions at a time. Inside a chunk, with G the running product of
  the decays and S the state before it,

      (I + A) U = beta (V - G (K S^T)),   A_ts = beta_t G_t / G_s (k_t . k_s) for s < t
      Y = G (Q S^T) + (G_t / G_s (q_t . k_s) for s <= t) U
      S <- G_C S + sum_s G_C / G_s u_s k_s^T

  (Yang et al., "Gated Delta Networks", 2024). The inverse is put together from blocks of twice
  the size, log2 C times: forward substitution, which stays exact where keys repeat, as powers of
  A would not.
- Experts: every one for every row, then those that were chosen.
- Pooled index: ranks by sorting instead of by counting. A choice has no gradient, so the index
  learns from a loss of its own: its scores, as a distribution over the blocks a query sees,
  follow where unrestricted attention of the same layer looks (as in DeepSeek-V3.2's lightning
  indexer, 2025).
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList

from reference_models.attention import attend
from reference_models.config import HybridConfig
from reference_models.gated_delta import CONV, RECURRENT, GatedDeltaNet, Projections
from reference_models.hybrid import HybridLayer, HybridModel, LinearLayer
from reference_models.moe import RoutedExperts, SparseMoE
from reference_models.mtp import MTPHead
from reference_models.norms import silu
from reference_models.pooled import IndexedAttention, PooledIndex
from reference_models.weights import Weights

CHUNK = 32


class ChunkedGatedDeltaNet(GatedDeltaNet):
    """A GatedDeltaNet that takes a chunk of positions a step."""

    def scan(
        self,
        inputs: Projections,
        cache: ArraysCache,
        states: list[tuple[mx.array, mx.array]] | None = None,
    ) -> mx.array:
        """As the plain form, for whole chunks only; no state in between is kept."""
        batch, length, _ = inputs.qkv.shape
        if length % CHUNK or states is not None:
            raise ValueError(f"{length} positions are not whole chunks of {CHUNK}")
        window, state = self._before(batch, inputs.qkv.dtype, cache)
        history = mx.concatenate([window, inputs.qkv], axis=1)
        q, k, v = (_in_chunks(x) for x in self._convolve(history, length))
        beta = _in_chunks(mx.sigmoid(inputs.b.astype(mx.float32))[..., None])
        decay = mx.cumsum(_in_chunks(self._log_decay(inputs.a)[..., None]), axis=-2)
        y, state = _chunked_delta_rule(q, k, v, beta, decay, state)
        cache[CONV], cache[RECURRENT] = history[:, length:], state
        return y.reshape(batch, -1, length, y.shape[-1]).swapaxes(1, 2)

    def _log_decay(self, a: mx.array) -> mx.array:
        """-exp(A_log) softplus(a + dt_bias), float32 [B, T, Hv]."""
        w = self._weights
        shifted = a.astype(mx.float32) + w["dt_bias"].astype(mx.float32)
        return -mx.exp(w["A_log"].astype(mx.float32)) * mx.logaddexp(shifted, mx.array(0.0))


def _in_chunks(x: mx.array) -> mx.array:
    """[B, T, heads, D] to [B, heads, chunks, C, D]."""
    batch, _, heads, size = x.shape
    return x.swapaxes(1, 2).reshape(batch, heads, -1, CHUNK, size)


def _chunked_delta_rule(
    q: mx.array, k: mx.array, v: mx.array, beta: mx.array, decay: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Outputs [B, heads, chunks, C, Dv] and the state [B, heads, Dv, Dk] after them.

    `decay` is the logarithm of G [B, heads, chunks, C, 1]; the others as `_in_chunks` gives them.
    """
    index = mx.arange(CHUNK)
    between = mx.where(index[:, None] >= index, decay - decay.swapaxes(-1, -2), -mx.inf)
    ratio, grown = mx.exp(between), mx.exp(decay)
    keys_across = k.swapaxes(-1, -2)
    below = mx.where(index[:, None] > index, beta * ratio * (k @ keys_across), 0.0)
    inverse = _unit_lower_inverse(below)
    from_values, from_state = inverse @ (beta * v), inverse @ (beta * grown * k)
    seen = ratio * (q @ keys_across)
    queries = grown * q
    kept = mx.exp(decay[..., -1:, :] - decay) * k
    outputs: list[mx.array] = []
    for chunk in range(q.shape[2]):
        across = state.swapaxes(-1, -2)
        update = from_values[:, :, chunk] - from_state[:, :, chunk] @ across
        outputs.append(queries[:, :, chunk] @ across + seen[:, :, chunk] @ update)
        last = grown[:, :, chunk, -1:]
        state = last * state + update.swapaxes(-1, -2) @ kept[:, :, chunk]
    return mx.stack(outputs, axis=2), state


def _unit_lower_inverse(below: mx.array) -> mx.array:
    """(I + below)^-1 for a strictly lower triangular `below` [..., C, C]."""
    index = mx.arange(CHUNK)
    inverse = mx.broadcast_to(mx.eye(CHUNK), below.shape)
    size = 1
    while size < CHUNK:
        block = index // size
        joins = (block[:, None] == block + 1) & (block[:, None] % 2 == 1)
        inverse = inverse - inverse @ mx.where(joins, below, 0.0) @ inverse
        size *= 2
    return inverse


class AllExperts(RoutedExperts):
    """Every expert for every row, and then the chosen ones' results."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self._inward = weights["gate_up_proj"].swapaxes(-1, -2)
        self._outward = weights["down_proj"].swapaxes(-1, -2)

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Run x [B, T, H] through experts chosen [B, T, k]: [B, T, k, H]."""
        rows = x.reshape(1, -1, x.shape[-1])
        gate, up = mx.split(rows @ self._inward, 2, axis=-1)
        results = ((silu(gate) * up) @ self._outward).swapaxes(0, 1)  # [B*T, E, H]
        flat = chosen.reshape(-1, chosen.shape[-1], 1)
        return mx.take_along_axis(results, mx.stop_gradient(flat), axis=1).reshape(
            *chosen.shape, -1
        )


class SortedIndex(PooledIndex):
    """A pooled index that sorts, and keeps the scores of its last call for its own loss."""

    scores: mx.array

    def _score(self, queries: mx.array, pooled: mx.array) -> mx.array:
        self.scores = super()._score(queries, pooled)
        return self.scores

    def _ranks(self, scores: mx.array) -> mx.array:
        # mlx sorts equal scores by index on the CPU, and so the lowest index wins here too.
        return mx.argsort(mx.argsort(-mx.stop_gradient(scores), axis=-1), axis=-1)


class LearningAttention(IndexedAttention):
    """Attention over a selection, whose index learns; `losses` receives a value a call."""

    def __init__(self, config: HybridConfig, weights: Weights, losses: list[mx.array]) -> None:
        super().__init__(config, weights)
        self._ratio = config.indexer_compress_ratio
        self._sorted = SortedIndex(config, weights.at("indexer"))
        self._losses = losses

    def __call__(self, x: mx.array, cache: CacheList) -> mx.array:
        """Map x [B, T, H] to [B, T, H], from an empty cache."""
        positions = mx.arange(x.shape[1])
        selected = self._sorted(mx.stop_gradient(x), positions, cache)
        projected = self._projections(x, positions)
        queries, keys = projected.queries, projected.keys
        self._losses.append(self._index_loss(queries, keys))
        mixed = attend(queries, keys, projected.values, selected)
        return self._projections.output(mixed, projected.gate)

    def _index_loss(self, queries: mx.array, keys: mx.array) -> mx.array:
        """Cross entropy of the scores' distribution against attention's, by blocks."""
        blocks, length = self._sorted.scores.shape[-1], keys.shape[2]
        positions = mx.arange(length)
        complete = mx.arange(blocks) < ((positions + 1) // self._ratio)[:, None]
        looked = mx.stop_gradient(self._looked_at(queries, keys, blocks)) * complete
        looked = looked / mx.maximum(looked.sum(axis=-1, keepdims=True), 1e-6)
        scores = mx.where(complete, self._sorted.scores, -1e9)
        law = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
        return -(looked * mx.where(complete, law, 0.0)).sum(axis=-1).mean()

    def _looked_at(self, queries: mx.array, keys: mx.array, blocks: int) -> mx.array:
        """How much of unrestricted attention falls on every block, mean of heads [B, T, blocks]."""
        batch, _, length, dim = keys.shape
        grouped = queries.reshape(batch, keys.shape[1], -1, length, dim)
        scores = (grouped @ keys[:, :, None].swapaxes(-1, -2)) * dim**-0.5
        causal = mx.arange(length)[:, None] >= mx.arange(length)
        share = mx.softmax(mx.where(causal, scores, -mx.inf), axis=-1).mean(axis=(1, 2))
        return share[..., : blocks * self._ratio].reshape(batch, length, blocks, -1).sum(axis=-1)


def build(
    config: HybridConfig, arrays: Mapping[str, mx.array]
) -> tuple[HybridModel, MTPHead, list[mx.array]]:
    """Target, head and the list that receives the index losses, on float32 arrays.

    Their caches must be fresh ones, and the length of every call a multiple of `CHUNK` for the
    target.
    """
    weights, losses = Weights(arrays), list[mx.array]()
    target = HybridModel(config, weights)
    head = MTPHead(config, weights.at("mtp"), target)
    for index, layer in enumerate(target.layers):
        _quicken(layer, config, weights.at(f"model.layers.{index}"), losses)
    for index, layer in enumerate(head.layers):
        _quicken(layer, config, weights.at(f"mtp.layers.{index}"), losses)
    return target, head, losses


def _quicken(
    layer: HybridLayer | LinearLayer,
    config: HybridConfig,
    weights: Weights,
    losses: list[mx.array],
) -> None:
    if isinstance(layer, LinearLayer):
        layer.mixer = ChunkedGatedDeltaNet(config, weights.at("linear_attn"))
    elif isinstance(layer.attention, IndexedAttention):
        layer.attention = LearningAttention(config, weights.at("self_attn"), losses)
    if isinstance(layer.mlp, SparseMoE):
        layer.mlp.experts = AllExperts(weights.at("mlp.experts"))
