"""The MTP head of the Qwen3-Next and Qwen3.5 families, from the weights mlx-lm drops.

    x = W_fc [norm_e(E[t_{i+1}]) ; norm_h(h_i)];  layers;  y = norm(x);  logits = W_o y

with h_i the residual before the backbone's final norm. The layers are mlx-lm's own decoder
layers with attention, one after the other; the chain continues with y. (Names and form as
in the checkpoints' `mtp.*` tensors and mlx-lm pull request 990.)
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache

from mtp_decoder.errors import CheckpointError
from mtp_decoder.qwen.experts import stack_experts
from mtp_decoder.qwen.target import AttentionLayer, QwenTarget
from mtp_decoder.target import Layer

_BITS = (2, 3, 4, 5, 6, 8)


class QwenHead(nn.Module):
    """A head for a `QwenTarget`; shares its embedding and output projection."""

    def __init__(self, target: QwenTarget, num_layers: int) -> None:
        super().__init__()
        args = target.args
        size, eps = args.hidden_size, args.rms_norm_eps
        decoder_layer = type(target.model.layers[0])
        attention_index = args.full_attention_interval - 1
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.blocks = [decoder_layer(args, attention_index) for _ in range(num_layers)]
        self.norm = nn.RMSNorm(size, eps=eps)
        self._target = target
        self._layers: list[Layer] = [AttentionLayer(block) for block in self.blocks]

    @property
    def layers(self) -> list[Layer]:
        """The layers in the decoder's protocol."""
        return self._layers

    def make_cache(self) -> list[Any]:
        """One empty `KVCache` a layer."""
        return [KVCache() for _ in self.blocks]

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """Pairs (hidden [B, T, H], tokens [B, T]) to draft logits [B, T, V] and hidden."""
        embedded = self.pre_fc_norm_embedding(self._target.embed(tokens))
        joined = mx.concatenate([embedded, self.pre_fc_norm_hidden(hidden)], axis=-1)
        x = self.fc(joined)
        for layer, state in zip(self._layers, cache, strict=True):
            x = layer(x, tokens, state)
        y = self.norm(x)
        return self._target.project(y), y


def build_head(
    target: QwenTarget,
    tensors: dict[str, mx.array],
    *,
    about_zero: bool,
    layers: int | None = None,
    mode: str = "affine",
) -> QwenHead:
    """A head from its checkpoint tensors, not evaluated yet.

    Args:
        target: the model the head belongs to.
        tensors: arrays named as below `mtp.` in the checkpoint.
        about_zero: whether norms are stored about zero (Hugging Face's layout).
        layers: how many layers the config says; None where it does not.
        mode: of the trunk's quantisation, for a head that is quantised too.

    Raises:
        CheckpointError: a tensor is missing, unknown, or of another shape.
    """
    for name in tensors:
        if name.startswith("layers.") and not name.split(".")[1].isdecimal():
            raise CheckpointError(f"the MTP head has an unknown tensor mtp.{name}")
    weights = {_rename(name): array for name, array in tensors.items()}
    weights = stack_experts(weights, target.args)
    if about_zero:
        weights = {n: a + 1.0 if a.ndim == 1 else a for n, a in weights.items()}
    count = 1 + max((int(n.split(".")[1]) for n in weights if n.startswith("blocks.")), default=-1)
    if not count:
        raise CheckpointError("the checkpoint's MTP head has no layer (mtp.layers.0.*)")
    if layers is not None and count < layers:
        raise CheckpointError(
            f"half an MTP head: it has {count} of {layers} layers; mtp.layers.{count}.* is missing"
        )
    head = QwenHead(target, count)
    _quantize(head, weights, mode)
    _check(head, weights)
    head.load_weights(list(weights.items()), strict=True)
    head.eval()
    return head


def _rename(name: str) -> str:
    return name.replace("layers.", "blocks.", 1) if name.startswith("layers.") else name


def _check(head: QwenHead, weights: dict[str, mx.array]) -> None:
    from mlx.utils import tree_flatten

    expected: dict[str, mx.array] = dict(tree_flatten(head.parameters()))
    missing = [name for name in expected if name not in weights]
    if missing:
        few = ", ".join(f"mtp.{_original(name)}" for name in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise CheckpointError(
            f"half an MTP head: it lacks {few}{more} ({len(missing)} of its "
            f"{len(expected)} tensors); fetch or convert it again"
        )
    for name, array in expected.items():
        if weights[name].shape != array.shape:
            raise CheckpointError(
                f"mtp.{_original(name)} is {weights[name].shape}, the config says {array.shape}"
            )
    unknown = [name for name in weights if name not in expected]
    if unknown:
        raise CheckpointError(f"the MTP head has an unknown tensor mtp.{_original(unknown[0])}")


def _original(name: str) -> str:
    return name.replace("blocks.", "layers.", 1)


def _quantize(head: QwenHead, weights: dict[str, mx.array], mode: str) -> None:
    """Quantise the modules the checkpoint stores quantised, with the sizes it stores.

    Scales without biases are of another mode than affine, which the sizes do not tell: the
    trunk's is taken.
    """

    def sizes(path: str, module: nn.Module) -> bool | dict[str, Any]:
        scales, packed = weights.get(f"{path}.scales"), weights.get(f"{path}.weight")
        if scales is None or packed is None or not hasattr(module, "to_quantized"):
            return False
        dim: int = module["weight"].shape[-1]
        groups, bits = scales.shape[-1], 32 * packed.shape[-1] // dim
        if bits not in _BITS or not groups or dim % groups:
            raise CheckpointError(
                f"mtp.{_original(path)} is no quantised matrix of {dim} columns: its weight is "
                f"{packed.shape}, its scales are {scales.shape}"
            )
        kind = "affine" if f"{path}.biases" in weights else mode
        return {"group_size": dim // groups, "bits": bits, "mode": kind}

    if not any(name.endswith(".scales") for name in weights):
        return
    try:
        nn.quantize(head, class_predicate=sizes)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"the MTP head is quantised in a way mlx refuses: {error}") from error
