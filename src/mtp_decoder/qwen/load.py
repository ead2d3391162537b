"""Open a Qwen checkpoint folder: mlx-lm's model, the MTP head beside it, the tokenizer."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple, cast

import mlx.core as mx
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import load_model

from mtp_decoder.errors import CheckpointError
from mtp_decoder.experts import OffloadSettings, Shards, offload
from mtp_decoder.qwen.head import QwenHead, build_head
from mtp_decoder.qwen.target import QwenTarget

_FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")


class Loaded(NamedTuple):
    """A target and its head; None where the checkpoint has no `mtp.*` tensor."""

    target: QwenTarget
    head: QwenHead | None


def load(folder: str | Path, experts: OffloadSettings | None = None) -> Loaded:
    """Open a checkpoint folder of qwen3_5, qwen3_5_moe or qwen3_next.

    Args:
        folder: with config.json and safetensors.
        experts: leave routed experts on disk, under these budgets.

    Raises:
        CheckpointError: no such folder, a missing or truncated file, another family, a broken
            head, or experts in a dtype this device has no kernel for.
        DecoderError: a budget that holds no expert, or no experts to leave on disk.
    """
    path = Path(folder)
    config = read_config(path)
    family = config.get("model_type")
    if family not in _FAMILIES:
        raise CheckpointError(
            f"{path}: model_type {family!r} is none of {', '.join(_FAMILIES)}; "
            "other models need --loader package.module:function"
        )
    if not list(path.glob("model*.safetensors")):
        raise CheckpointError(f"{path} has no model*.safetensors")
    shards = None if experts is None else Shards(path)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        model, _ = load_model(path, lazy=shards is not None)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise CheckpointError(f"mlx-lm cannot load {path}: {error}") from error
    target = QwenTarget(model)
    _check_experts(path, model)
    stored = _load_tensors(path)
    head = {n.partition("mtp.")[2]: a for n, a in stored.items() if _is_head(n)}
    built = build_head(target, head, about_zero=_about_zero(family, stored)) if head else None
    if shards is not None and experts is not None:
        offload(target, built, shards, experts)
    mx.eval(model.parameters(), [] if built is None else built.parameters())
    return Loaded(target, built)


def read_config(path: Path) -> dict[str, Any]:
    """The folder's config.json.

    Raises:
        CheckpointError: there is none, or it holds no JSON object.
    """
    file = path / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{path} has no config.json; give a checkpoint folder")
    try:
        config: object = json.loads(file.read_text())
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file} holds a {type(config).__name__}, not an object")
    return cast("dict[str, Any]", config)


def _check_experts(path: Path, model: Any) -> None:
    """Refuse routed experts that could not be multiplied: mlx's CPU kernel is float32 only."""
    dtypes = {m.weight.dtype for m in model.modules() if isinstance(m, SwitchLinear)}
    for dtype in dtypes:
        one = mx.zeros((1, 1, 1), dtype)
        try:
            mx.eval(mx.gather_mm(one, one, rhs_indices=mx.array([0])))
        except RuntimeError as error:
            name = str(dtype).removeprefix("mlx.core.")
            raise CheckpointError(
                f"{path} has {name} experts, which mlx cannot multiply on the "
                f"{mx.default_device().type.name} ({error}); use a GPU, or weights in float32"
            ) from error


def _load_tensors(path: Path) -> dict[str, mx.array]:
    tensors: dict[str, mx.array] = {}
    for file in sorted(path.glob("*.safetensors")):
        tensors |= cast("dict[str, mx.array]", mx.load(str(file)))
    return tensors


def _is_head(name: str) -> bool:
    return name.startswith("mtp.") or ".mtp." in name


def _about_zero(family: str, stored: dict[str, mx.array]) -> bool:
    """Whether mlx-lm took the trunk's norms for stored about zero; the head's are alike.

    qwen3_next: experts are stored one by one. The others: a short convolution is stored
    channels first. Both are Hugging Face's layout, and mlx-lm's own test.
    """
    if family == "qwen3_next":
        return any(n.endswith(".mlp.experts.0.up_proj.weight") for n in stored)
    return any("conv1d.weight" in n and a.shape[-1] != 1 for n, a in stored.items())
