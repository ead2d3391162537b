"""Routed experts of a head, from the checkpoint's layouts to mlx-lm's stacked one.

Hugging Face stores them fused (`experts.gate_up_proj` [E, 2F, H], gate first) or one by one
(`experts.N.up_proj.weight`); mlx-lm stacks them (`switch_mlp.up_proj.weight` [E, F, H]).
"""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx

from mtp_decoder.errors import CheckpointError

_FUSED = re.compile(r"(.*\.)experts\.(gate_up_proj|down_proj)")
_SINGLE = re.compile(r"(.*\.)experts\.\d+\.(gate_proj|up_proj|down_proj)\.weight")
_PARTS = ("gate_proj", "up_proj", "down_proj")


def stack_experts(weights: dict[str, mx.array], args: Any) -> dict[str, mx.array]:
    """Replace experts in either of Hugging Face's layouts by mlx-lm's.

    Args:
        weights: named as in `QwenHead`.
        args: the model's, for the number and sizes of experts.

    Raises:
        CheckpointError: one of them is missing or has another shape.
    """
    found = dict(weights)
    size, inner, count = args.hidden_size, args.moe_intermediate_size, args.num_experts
    for prefix in sorted({m[1] for name in weights if (m := _FUSED.fullmatch(name))}):
        both = _take(found, f"{prefix}experts.gate_up_proj", (count, 2 * inner, size))
        gate, up = mx.split(both, 2, axis=1)
        down = _take(found, f"{prefix}experts.down_proj", (count, size, inner))
        _store(found, prefix, gate, up, down)
    for prefix in sorted({m[1] for name in weights if (m := _SINGLE.fullmatch(name))}):
        shapes = ((inner, size), (inner, size), (size, inner))
        stacks = [
            mx.stack(
                [_take(found, f"{prefix}experts.{e}.{part}.weight", shape) for e in range(count)]
            )
            for part, shape in zip(_PARTS, shapes, strict=True)
        ]
        _store(found, prefix, *stacks)
    return found


def _take(weights: dict[str, mx.array], name: str, shape: tuple[int, ...]) -> mx.array:
    original = f"mtp.{name.replace('blocks.', 'layers.', 1)}"
    if name not in weights:
        raise CheckpointError(f"the MTP head lacks {original}")
    array = weights.pop(name)
    if array.shape != shape:
        raise CheckpointError(f"{original} is {array.shape}, the config says {shape}")
    return array


def _store(weights: dict[str, mx.array], prefix: str, *stacks: mx.array) -> None:
    for part, stack in zip(_PARTS, stacks, strict=True):
        weights[f"{prefix}switch_mlp.{part}.weight"] = stack
