"""The zoo: every tiny model, by name.

Each is under 200k parameters and has every one of its mechanisms really at work within a
dozen tokens: selection turns sparse at position 11, the ring wraps at 8, hash multipliers
are not zero, no norm weight is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from reference_models.config import FULL, INDEXED, LINEAR, SLIDING, ConfigError, HybridConfig
from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead
from reference_models.weights import Tensor, draw, prefixed

_GDN = HybridConfig("qwen3_5", (LINEAR, LINEAR, FULL, LINEAR, LINEAR, FULL))
_EXPERTS: dict[str, Any] = {"num_experts": 6, "num_experts_per_tok": 2}

ZOO: dict[str, HybridConfig] = {
    "attn": HybridConfig("qwen3_5", (FULL, FULL, FULL)),
    "gdn": _GDN,
    "gdn-moe": replace(_GDN, model_type="qwen3_5_moe", **_EXPERTS),
    "gdn-next": replace(_GDN, model_type="qwen3_next", **_EXPERTS),
    "gdn-agree": _GDN,
    "attn-ties": HybridConfig("qwen3_5", (FULL, FULL, FULL)),
    "gdn-mtp2": replace(_GDN, mtp_num_hidden_layers=2),
    "gdn-wide": HybridConfig("qwen3_5", (LINEAR, FULL, LINEAR, FULL), head_dim=32),
    "window": HybridConfig("hybrid_reference", (SLIDING, LINEAR, FULL)),
    "ple": HybridConfig("hybrid_reference", (LINEAR, LINEAR, LINEAR, FULL), ple_layer_ids=(2,)),
    "qsa": HybridConfig("hybrid_reference", (LINEAR, INDEXED, LINEAR, INDEXED), indexer_n_heads=4),
    "flash-next": HybridConfig(
        "qwen4_exp",
        (LINEAR, LINEAR, LINEAR, INDEXED),
        indexer_n_heads=4,
        ple_layer_ids=(2,),
        hc_count=2,
        output_gate_type="sigmoid",
        **_EXPERTS,
    ),
}


def config_of(name: str) -> HybridConfig:
    """The configuration of a zoo model.

    Raises:
        ConfigError: there is no model of that name; the message lists those there are.
    """
    try:
        return ZOO[name]
    except KeyError:
        known = ", ".join(ZOO)
        raise ConfigError(f"the zoo has no model {name!r}; it has {known}") from None


def tensors_of(config: HybridConfig) -> dict[str, Tensor]:
    """Every tensor of target and head."""
    return {**HybridModel.tensors(config), **prefixed("mtp", MTPHead.tensors(config))}


def parameters_of(config: HybridConfig) -> int:
    """Number of parameters of target and head together."""
    return sum(int(np.prod(tensor.shape)) for tensor in tensors_of(config).values())


def _made_to_agree(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Weights whose head is often right; a random head hardly ever is.

    Blocks write little into the residual, so that the next token depends mostly on the last
    one, and the head's join passes that token's embedding on and ends in the target's norm.
    All mechanisms stay at work; the factors are powers of two, exact in every data type.
    """
    quiet = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
    made = {n: a * 0.0625 if n.endswith(quiet) else a for n, a in weights.items()}
    size = made["mtp.fc.weight"].shape[0]
    passed_on = mx.diag(1.0 / (1.0 + made["mtp.pre_fc_norm_embedding.weight"]))
    made["mtp.fc.weight"] = mx.concatenate(
        [passed_on, made["mtp.fc.weight"][:, size:] * 0.0625], axis=1
    )
    made["mtp.norm.weight"] = made["model.norm.weight"]
    return made


TWIN_DISTANCE = 128
"""In `attn-ties` token t below this and token t plus this have equal logits everywhere."""


def _made_to_tie(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Weights whose output projection has every one of its first rows twice."""
    rows = weights["lm_head.weight"]
    first, rest = rows[:TWIN_DISTANCE], rows[2 * TWIN_DISTANCE :]
    return {**weights, "lm_head.weight": mx.concatenate([first, first, rest])}


def random_weights(name: str, dtype: mx.Dtype = mx.float32, seed: int = 0) -> dict[str, mx.array]:
    """The zoo model's weights; the same on every platform. A_log stays float32.

    Seed 0 is the zoo; another one draws other weights for the same models.
    """
    tensors = tensors_of(config_of(name))
    drawn = {n: mx.array(draw(name, n, tensor, seed)) for n, tensor in tensors.items()}
    if name == "gdn-agree":
        drawn = _made_to_agree(drawn)
    if name == "attn-ties":
        drawn = _made_to_tie(drawn)
    return {n: a if n.endswith("A_log") else a.astype(dtype) for n, a in drawn.items()}
