"""mlx-lm's Qwen models, layer by layer.

Every forward pass goes through mlx-lm's own layer; only a verify pass that records takes a
GatedDeltaNet layer apart.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_attention_mask, create_ssm_mask

from mtp_decoder.errors import DecoderError
from mtp_decoder.qwen import row_exact
from mtp_decoder.qwen.gated_delta import Projections, finish, project, scan
from mtp_decoder.row_exact import RowByRowTarget
from mtp_decoder.target import Layer, Slots, Tape, Target

_MODULES = ("mlx_lm.models.qwen3_5", "mlx_lm.models.qwen3_5_moe", "mlx_lm.models.qwen3_next")


class AttentionLayer:
    """A layer with attention; state in a `KVCache`."""

    def __init__(self, layer: Any) -> None:
        self.wrapped = layer

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """As mlx-lm's layer."""
        del tokens
        return self.wrapped(x, mask=create_attention_mask(x, cache), cache=cache)


class LinearLayer:
    """A layer with a GatedDeltaNet; state in an `ArraysCache(2)`."""

    slots = ("conv", "recurrent")

    def __init__(self, layer: Any) -> None:
        self.wrapped = layer

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """As mlx-lm's layer."""
        del tokens
        return self.wrapped(x, mask=create_ssm_mask(x, cache), cache=cache)

    def record(
        self, x: mx.array, tokens: mx.array, cache: Any, states: list[Slots] | None = None
    ) -> tuple[mx.array, Tape]:
        """As `__call__`, with a tape of qkv [B, T, C], b and a [B, T, Hv]."""
        del tokens
        layer, mixer = self.wrapped, self.wrapped.linear_attn
        inputs = project(mixer, layer.input_layernorm(x))
        x = x + finish(mixer, scan(mixer, inputs, cache, states), inputs)
        out = x + layer.mlp(layer.post_attention_layernorm(x))
        return out, {"qkv": inputs.qkv, "b": inputs.b, "a": inputs.a}

    def advance(self, x: mx.array, tokens: mx.array, cache: Any) -> None:
        """Norm and mixer of mlx-lm's layer, without its feed-forward block."""
        del tokens
        layer = self.wrapped
        layer.linear_attn(layer.input_layernorm(x), create_ssm_mask(x, cache), cache)

    def advance_tape(self, tape: Tape, tokens: mx.array, cache: Any) -> None:
        """Convolution and recurrence on taped inputs."""
        del tokens
        inputs = Projections(qkv=tape["qkv"], z=tape["qkv"], b=tape["b"], a=tape["a"])
        scan(self.wrapped.linear_attn, inputs, cache)


class QwenTarget:
    """A `Target` over a loaded mlx-lm model.

    Args:
        model: an instance of mlx-lm's `Model` of qwen3_5, qwen3_5_moe or qwen3_next.

    Raises:
        DecoderError: a model of another class.
    """

    def __init__(self, model: Any) -> None:
        if type(model).__module__ not in _MODULES:
            known = ", ".join(name.rpartition(".")[2] for name in _MODULES)
            raise DecoderError(
                f"cannot decode a {type(model).__module__}.{type(model).__name__} with drafts; "
                f"known families: {known}"
            )
        self.model = model
        self._text: Any = getattr(model, "language_model", model)
        self.args: Any = self._text.args
        self.vocab_size: int = self.args.vocab_size
        self.layers: list[Layer] = [_wrap(layer) for layer in model.layers]

    def make_cache(self) -> list[Any]:
        """mlx-lm's own caches."""
        return self.model.make_cache()

    def embed(self, tokens: mx.array) -> mx.array:
        """Token embeddings [B, T, H]."""
        return self._text.model.embed_tokens(tokens)

    def logits(self, hidden: mx.array) -> mx.array:
        """Final norm and output projection: [B, T, H] to [B, T, V]."""
        return self.project(self._text.model.norm(hidden))

    def project(self, hidden: mx.array) -> mx.array:
        """The output projection alone."""
        if self.args.tie_word_embeddings:
            return self._text.model.embed_tokens.as_linear(hidden)
        return self._text.lm_head(hidden)

    def row_exact(self) -> Target:
        """The model with rows computed as in one-token steps, in the way of this backend."""
        return RowExactQwen(self) if mx.cuda.is_available() else RowByRowTarget(self)

    @property
    def output(self) -> tuple[Any, bool]:
        """The module that projects to logits, and whether it is the embedding."""
        tied = self.args.tie_word_embeddings
        return (self._text.model.embed_tokens, True) if tied else (self._text.lm_head, False)

    def norm(self, hidden: mx.array) -> mx.array:
        """The final norm alone."""
        return self._text.model.norm(hidden)


class RowExactQwen:
    """A `QwenTarget` whose verify passes keep their rows together where that keeps the bits."""

    def __init__(self, target: QwenTarget) -> None:
        self._target = target
        self.vocab_size = target.vocab_size
        self.layers: list[Layer] = [_wrap(row_exact.twin(layer)) for layer in target.model.layers]
        output, tied = target.output
        self._project = row_exact.projection(output, tied=tied)

    def make_cache(self) -> list[Any]:
        """mlx-lm's own caches."""
        return self._target.make_cache()

    def embed(self, tokens: mx.array) -> mx.array:
        """Token embeddings [B, T, H]."""
        return self._target.embed(tokens)

    def logits(self, hidden: mx.array) -> mx.array:
        """Final norm and output projection: [B, T, H] to [B, T, V]."""
        if hidden.shape[1] == 1:
            return self._target.logits(hidden)
        return self._project(self._target.norm(hidden))


def _wrap(layer: Any) -> LinearLayer | AttentionLayer:
    return LinearLayer(layer) if layer.is_linear else AttentionLayer(layer)
