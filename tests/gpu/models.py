"""Models to measure on: the zoo, and random ones of real sizes in mlx-lm's classes.

A random model is as good as a trained one for bits and for time. For near-ties it is harder:
its logits lie closer together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mtp_decoder.qwen.head import QwenHead
from mtp_decoder.qwen.load import load
from mtp_decoder.qwen.target import QwenTarget
from reference_models import checkpoint as checkpoints
from reference_models.zoo import ZOO

Pair = tuple[Any, Any]
"""A target and its head."""

_COMMON = {
    "head_dim": 128,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
}
_DENSE = {
    **_COMMON,
    "model_type": "qwen3_5",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 24,
    "vocab_size": 65536,
}
_EXPERTS = {
    **_COMMON,
    "model_type": "qwen3_5_moe",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "vocab_size": 65536,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_SMALL = {
    "num_hidden_layers": 4,
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}
"""For `--quick`: what the scripts do, in seconds."""


@dataclass(frozen=True)
class Subject:
    """A model to measure on: its name, how it is made, its data type."""

    name: str
    make: Callable[[], Pair]
    dtype: str
    quantised: int = 0


def zoo(folder: Path, *, quick: bool) -> list[Subject]:
    """The zoo in both data types, in the reference classes and, where there are some, mlx-lm's."""
    names = ["gdn-moe", "ple"] if quick else list(ZOO)
    found: list[Subject] = []
    for name in names:
        for dtype in ("float32", "bfloat16"):
            made = partial(_reference, name, dtype, folder)
            found.append(Subject(name, made, dtype))
            if ZOO[name].model_type.startswith("qwen3"):
                made = partial(_mlx_lm, name, dtype, folder)
                found.append(Subject(f"{name}+mlx-lm", made, dtype))
    return found


def _checkpoint(name: str, dtype: str, folder: Path) -> Path:
    path = folder / f"{name}-{dtype}"
    if not path.exists():
        checkpoints.write_zoo(name, path, getattr(mx, dtype), 0)
    return path


def _reference(name: str, dtype: str, folder: Path) -> Pair:
    return checkpoints.read(_checkpoint(name, dtype, folder))


def _mlx_lm(name: str, dtype: str, folder: Path) -> Pair:
    loaded = load(_checkpoint(name, dtype, folder))
    return loaded.target, loaded.head


def big(*, quick: bool) -> list[Subject]:
    """Random models: dense and with experts, in bfloat16, 8 and 4 bits."""
    found: list[Subject] = []
    for name, config in (("dense", _DENSE), ("experts", _EXPERTS)):
        args = config | {n: v for n, v in _SMALL.items() if n in config} if quick else config
        for bits in (0, 8, 4):
            label = f"random {name}" + (f" {bits} bits" if bits else "")
            found.append(Subject(label, partial(random_qwen, args, bits), "bfloat16", bits))
    return found


def random_qwen(config: dict[str, Any], bits: int = 0) -> Pair:
    """A random model and head of mlx-lm's classes in bfloat16, or quantised as mlx-lm does it."""
    mx.random.seed(0)
    family = import_module(f"mlx_lm.models.{config['model_type']}")
    text = {**config, "rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.25}}
    model = family.Model(family.ModelArgs.from_dict({**config, "text_config": text}))
    target = QwenTarget(model)
    head = QwenHead(target, 1)
    for module in (model, head):
        module.set_dtype(mx.bfloat16)
        if bits:
            nn.quantize(module, group_size=64, bits=bits, class_predicate=_large)
        module.eval()
        mx.eval(module.parameters())
    return target, head


def _large(path: str, module: nn.Module) -> bool:
    """As mlx-lm: what can be quantised, but for the router, which mlx-lm keeps at 8 bits."""
    return hasattr(module, "to_quantized") and not path.endswith((".gate", "shared_expert_gate"))


def parameters(target: Any) -> int:
    """How many numbers a target of mlx-lm's classes holds; packed ones count as what they hold."""
    total = 0
    for module in target.model.modules():
        own = {n: a for n, a in module.items() if isinstance(a, mx.array)}
        per_word = 32 // module.bits if "scales" in own else 1
        total += sum(
            a.size * (per_word if n == "weight" else 1)
            for n, a in own.items()
            if n not in ("scales", "biases")
        )
    return total


def weight_bytes(target: Any) -> int:
    """Bytes of a target of mlx-lm's classes."""
    flat: dict[str, mx.array] = dict(tree_flatten(target.model.parameters()))
    return sum(array.nbytes for array in flat.values())
