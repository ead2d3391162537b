"""The hybrid model: layers of the zoo's mechanisms joined by a residual.

A layer reads its block's input out of the residual and writes the block's output back. With
one stream that is the pre-norm residual (x + block(norm(x))); with several it is the
hyper-connection. A PLE, where there is one, comes first.

What a decoder needs beyond a forward pass is here too: a linear layer can `record` what its
state was advanced with, and can `advance` its state alone, without the rest of the layer and
without any expert.
"""

from __future__ import annotations

from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from reference_models.attention import FullAttention
from reference_models.config import FULL, INDEXED, LINEAR, HybridConfig
from reference_models.gated_delta import GatedDeltaNet, Projections
from reference_models.hyper import HyperConnection
from reference_models.mlp import DenseMLP, linear
from reference_models.moe import SparseMoE
from reference_models.norms import rms_norm
from reference_models.ple import PerLayerEmbedding, tensors_at
from reference_models.pooled import IndexedAttention
from reference_models.sliding import SlidingAttention
from reference_models.weights import Fill, Tensor, Weights, prefixed

Attention = FullAttention | SlidingAttention | IndexedAttention


class Connection(Protocol):
    """How a block is joined to the residual."""

    def read(self, x: mx.array) -> mx.array:
        """The block's input [B, T, H] out of the residual [B, T, W]."""
        ...

    def write(self, x: mx.array, y: mx.array) -> mx.array:
        """The residual with the block's output [B, T, H] written into it."""
        ...


class PreNorm:
    """The plain residual: x + block(norm(x))."""

    def __init__(self, config: HybridConfig, weight: mx.array) -> None:
        self._eps = config.rms_norm_eps
        self._weight = weight

    def read(self, x: mx.array) -> mx.array:
        """The normed residual."""
        return rms_norm(x, self._weight, self._eps)

    def write(self, x: mx.array, y: mx.array) -> mx.array:
        """The sum."""
        return x + y


def make_attention(kind: str, config: HybridConfig, weights: Weights) -> Attention:
    """The attention of one layer kind."""
    if kind == FULL:
        return FullAttention(config, weights)
    if kind == INDEXED:
        return IndexedAttention(config, weights)
    return SlidingAttention(config, weights)


class HybridLayer:
    """A layer with attention. State: the attention's cache."""

    def __init__(self, config: HybridConfig, weights: Weights, kind: str) -> None:
        if kind == INDEXED:
            self.pooled_ratio = config.indexer_compress_ratio
        self.attention = make_attention(kind, config, weights.at("self_attn"))
        self._around_mixer, self._around_mlp = connections(config, weights)
        self.mlp = make_mlp(config, weights.at("mlp"))

    def make_cache(self) -> Any:
        """An empty cache of the attention's class."""
        return self.attention.make_cache()

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """Map x [B, T, W] and tokens [B, T] to [B, T, W]; advance the cache by T positions."""
        del tokens
        y = self.attention(self._around_mixer.read(x), cache)
        return self._feed_forward(self._around_mixer.write(x, y))

    def _feed_forward(self, x: mx.array) -> mx.array:
        return self._around_mlp.write(x, self.mlp(self._around_mlp.read(x)))


class LinearLayer:
    """A layer with a GatedDeltaNet and perhaps a PLE. State: one `ArraysCache`.

    `slots` names its arrays in order.
    """

    def __init__(
        self, config: HybridConfig, weights: Weights, ple_index: int | None = None
    ) -> None:
        self.mixer = GatedDeltaNet(config, weights.at("linear_attn"))
        self._around_mixer, self._around_mlp = connections(config, weights)
        self.mlp = make_mlp(config, weights.at("mlp"))
        self.ple = None
        self.slots: tuple[str, ...] = ("conv", "recurrent")
        if ple_index is not None:
            self.ple = PerLayerEmbedding(config, weights.at("ple"), ple_index)
            self.slots = ("conv", "recurrent", "ngram", "ple_conv")

    def make_cache(self) -> ArraysCache:
        """An empty cache with one slot a name in `slots`."""
        return ArraysCache(size=len(self.slots))

    def __call__(self, x: mx.array, tokens: mx.array, cache: ArraysCache) -> mx.array:
        """Map x [B, T, W] and tokens [B, T] to [B, T, W]; advance the state by T positions."""
        return self.record(x, tokens, cache)[0]

    def record(
        self,
        x: mx.array,
        tokens: mx.array,
        cache: ArraysCache,
        states: list[tuple[mx.array, ...]] | None = None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """As `__call__`, and also returns the tape `advance_tape` needs.

        The tape holds arrays [B, T, ...]: qkv, a and b of the recurrence and, with a PLE,
        the rows of its convolution. `states`, if given, receives the slots' arrays after
        every position.
        """
        tape: dict[str, mx.array] = {}
        ple_states: list[tuple[mx.array, mx.array]] | None = None if states is None else []
        if self.ple is not None:
            added, tape["ple_rows"] = self.ple(x, tokens, cache, ple_states)
            x = x + added
        inputs = self.mixer.project(self._around_mixer.read(x))
        tape |= {"qkv": inputs.qkv, "b": inputs.b, "a": inputs.a}
        gdn_states: list[tuple[mx.array, mx.array]] | None = None if states is None else []
        y = self.mixer.finish(self.mixer.scan(inputs, cache, gdn_states), inputs)
        if states is not None:
            after_ple = ple_states or [()] * len(gdn_states or ())
            states.extend((*g, *p) for g, p in zip(gdn_states or (), after_ple, strict=True))
        x = self._around_mixer.write(x, y)
        return self._around_mlp.write(x, self.mlp(self._around_mlp.read(x))), tape

    def advance(self, x: mx.array, tokens: mx.array, cache: ArraysCache) -> None:
        """Advance the state alone by x [B, T, W]: PLE and recurrence, no feed-forward."""
        if self.ple is not None:
            x = x + self.ple(x, tokens, cache)[0]
        self.mixer.scan(self.mixer.project(self._around_mixer.read(x)), cache)

    def advance_tape(self, tape: dict[str, mx.array], tokens: mx.array, cache: ArraysCache) -> None:
        """Advance the state alone by what `record` taped: no projection, no norm."""
        if self.ple is not None:
            self.ple.advance(tape["ple_rows"], tokens, cache)
        inputs = Projections(qkv=tape["qkv"], z=tape["qkv"], b=tape["b"], a=tape["a"])
        self.mixer.scan(inputs, cache)


def connections(config: HybridConfig, weights: Weights) -> tuple[Connection, Connection]:
    """The joints around a layer's mixer and around its feed-forward block."""
    if config.hc_count > 1:
        return (
            HyperConnection(config, weights.at("attn_hyper_connection")),
            HyperConnection(config, weights.at("mlp_hyper_connection")),
        )
    names = ("input_layernorm.weight", "post_attention_layernorm.weight")
    first, second = (PreNorm(config, weights[name]) for name in names)
    return first, second


def make_mlp(config: HybridConfig, weights: Weights) -> DenseMLP | SparseMoE:
    """Dense or routed feed-forward, by `num_experts`."""
    return SparseMoE(config, weights) if config.num_experts else DenseMLP(weights)


def layer_tensors(config: HybridConfig, kind: str) -> dict[str, Tensor]:
    """Tensors of one layer without its PLE, names relative to the layer."""
    if kind == LINEAR:
        mixer = prefixed("linear_attn", GatedDeltaNet.tensors(config))
    else:
        attention = IndexedAttention if kind == INDEXED else FullAttention
        mixer = prefixed("self_attn", attention.tensors(config))
    if config.num_experts:
        mlp = SparseMoE.tensors(config)
    else:
        mlp = DenseMLP.tensors(config.hidden_size, config.intermediate_size)
    return {**mixer, **prefixed("mlp", mlp), **joint_tensors(config)}


def joint_tensors(config: HybridConfig) -> dict[str, Tensor]:
    """Tensors of the two joints of a layer."""
    if config.hc_count > 1:
        joint = HyperConnection.tensors(config, injects=True)
        return {
            **prefixed("attn_hyper_connection", joint),
            **prefixed("mlp_hyper_connection", joint),
        }
    norm = Tensor((config.hidden_size,), Fill.NORM_ABOUT_ZERO)
    return {"input_layernorm.weight": norm, "post_attention_layernorm.weight": norm}


def final_tensors(config: HybridConfig) -> dict[str, Tensor]:
    """Tensors between the last layer and the output projection."""
    if config.hc_count > 1:
        mixer = HyperConnection.tensors(config, injects=False)
        return prefixed("hyper_connection_mixer", mixer)
    return {"norm.weight": Tensor((config.hidden_size,), Fill.NORM_ABOUT_ZERO)}


def final_joint(config: HybridConfig, weights: Weights) -> Connection:
    """What turns the residual into the output projection's input, by `read`."""
    if config.hc_count > 1:
        return HyperConnection(config, weights.at("hyper_connection_mixer"))
    return PreNorm(config, weights["norm.weight"])


class HybridModel:
    """A target: embedding, layers, output projection.

    Calling it is a whole forward pass; `embed`, `layers` and `logits` are its parts, for a
    decoder that needs the residual in between.
    """

    def __init__(self, config: HybridConfig, weights: Weights) -> None:
        self.config = config
        self.vocab_size = config.vocab_size
        self._embedding = weights["model.embed_tokens.weight"]
        body = weights.at("model")
        self.layers: list[HybridLayer | LinearLayer] = [
            self._layer(index, kind, body.at(f"layers.{index}"))
            for index, kind in enumerate(config.layer_types)
        ]
        self._final = final_joint(config, body)
        tied = config.tie_word_embeddings
        self._output = self._embedding if tied else weights["lm_head.weight"]

    def _layer(self, index: int, kind: str, weights: Weights) -> HybridLayer | LinearLayer:
        if kind != LINEAR:
            return HybridLayer(self.config, weights, kind)
        ids = self.config.ple_layer_ids
        return LinearLayer(self.config, weights, ids.index(index + 1) if index + 1 in ids else None)

    @staticmethod
    def tensors(config: HybridConfig) -> dict[str, Tensor]:
        """Every tensor of the target, without the head."""
        vocab = (config.vocab_size, config.hidden_size)
        found = {"model.embed_tokens.weight": Tensor(vocab, Fill.EMBEDDING)}
        for index, kind in enumerate(config.layer_types):
            found |= prefixed(f"model.layers.{index}", layer_tensors(config, kind))
        for ple_index, layer_id in enumerate(config.ple_layer_ids):
            found |= tensors_at(f"model.layers.{layer_id - 1}", config, ple_index)
        found |= prefixed("model", final_tensors(config))
        if not config.tie_word_embeddings:
            found["lm_head.weight"] = Tensor(vocab, Fill.LOUD_MATRIX)
        return found

    def make_cache(self) -> list[Any]:
        """One empty cache a layer."""
        return [layer.make_cache() for layer in self.layers]

    def embed_tokens(self, tokens: mx.array) -> mx.array:
        """Token embeddings [B, T, H], before they are spread over the streams."""
        return self._embedding[tokens]

    def embed(self, tokens: mx.array) -> mx.array:
        """The residual the first layer reads: [B, T] to [B, T, W]."""
        return mx.tile(self._embedding[tokens], (1, 1, self.config.hc_count))

    def logits(self, hidden: mx.array) -> mx.array:
        """Logits [B, T, V] of the residual after the last layer [B, T, W]."""
        return self.project(self._final.read(hidden))

    def project(self, hidden: mx.array) -> mx.array:
        """The output projection alone: [B, T, H] to [B, T, V]."""
        return linear(hidden, self._output)

    def __call__(self, tokens: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Logits [B, T, V] of tokens [B, T] after what `cache` holds."""
        cache = self.make_cache() if cache is None else cache
        x = self.embed(tokens)
        for layer, state in zip(self.layers, cache, strict=True):
            x = layer(x, tokens, state)
        return self.logits(x)

    def routed_expert_calls(self) -> int:
        """How often routed experts of any layer have run so far."""
        blocks = [layer.mlp for layer in self.layers]
        return sum(block.experts.calls for block in blocks if isinstance(block, SparseMoE))
