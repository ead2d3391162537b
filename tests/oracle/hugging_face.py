# pyright: reportMissingImports=false
# (PyTorch is in the oracle's environment alone)
"""Opening a checkpoint folder with transformers: target and head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

from reference_models.checkpoint import read_config
from reference_models.config import FULL, LINEAR, HybridConfig
from tests.oracle.composed import EAGER, FAMILIES, ComposedHead, ComposedTarget, rope_of
from tests.oracle.double import double


def open_folder(
    folder: Path, dtype: torch.dtype, *, per_stream: bool = False
) -> tuple[Any, ComposedHead]:
    """Target and head of a checkpoint.

    Args:
        folder: what `reference_models write` made.
        dtype: torch.float32 as shipped; torch.float64 for use under `double`.
        per_stream: normalise the head's hidden over each stream, which is not the specification.
    """
    config = read_config(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    about_one = _layout(file) == "mlx"
    if config.model_type == "hybrid_reference":
        target: Any = ComposedTarget(config, _hybrid_config(config))
        trunk = {n: t for n, t in tensors.items() if not n.startswith("mtp.")}
        _load(target, trunk)
    else:
        target = _shipped(folder)
    theirs = target.config.get_text_config()
    head = ComposedHead(config, theirs, target, per_stream=per_stream)
    below = {n.removeprefix("mtp."): t for n, t in tensors.items() if n.startswith("mtp.")}
    _load(head, _stacked(below))
    for module in (target, head):
        module.eval().requires_grad_(False)
        if about_one:
            _shift_norms(module, config)
    return _as(target, dtype), _as(head, dtype)


def _shipped(folder: Path) -> Any:
    """The family's own class; every tensor of the folder is used and none is missing."""
    options = {name.removeprefix("_"): value for name, value in EAGER.items()}
    loader: Any = transformers.AutoModelForCausalLM
    model, report = loader.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, **options
    )
    wrong = {name: found for name, found in report.items() if found}
    if wrong:
        raise ValueError(f"transformers does not load {folder} whole: {wrong}")
    return model


def _hybrid_config(config: HybridConfig) -> Any:
    """Qwen3.5's config with a hybrid target's sizes."""
    kinds = [LINEAR if kind == LINEAR else FULL for kind in config.layer_types]
    names = ("num_", "linear_", "head_dim", "hidden_size", "vocab_size", "rms_", "intermediate_")
    sizes = {n: v for n, v in config.to_dict().items() if n.startswith(names)}
    config_class: Any = transformers.Qwen3_5TextConfig
    made = config_class(
        **{**sizes, "rope_parameters": rope_of(config), "layer_types": kinds},
        num_hidden_layers=len(kinds),
    )
    for name, value in EAGER.items():
        setattr(made, name, value)
    return made


def _load(module: Any, tensors: dict[str, Any]) -> None:
    """Load tensors, every one of them and every parameter; constants of the hash are made."""
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    constants = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
    missing = [name for name in missing if not name.endswith(constants)]
    if missing or unexpected:
        raise ValueError(f"{type(module).__name__}: missing {missing}, unexpected {unexpected}")


def _stacked(tensors: dict[str, Any]) -> dict[str, Any]:
    """Experts stored one by one (qwen3_next) as transformers' modules hold them."""
    out = dict(tensors)
    for first in [n for n in tensors if n.endswith("experts.0.gate_proj.weight")]:
        base = first.removesuffix("0.gate_proj.weight")
        count = len({n for n in out if n.startswith(base) and n.endswith("gate_proj.weight")})
        gate, up, down = (
            torch.stack([out.pop(f"{base}{e}.{part}_proj.weight") for e in range(count)])
            for part in ("gate", "up", "down")
        )
        out[f"{base}gate_up_proj"] = torch.cat([gate, up], dim=1)
        out[f"{base}down_proj"] = down
    return out


def _layout(file: Path) -> str:
    with safe_open(file, "pt") as opened:
        return (opened.metadata() or {}).get("format", "pt")


def _shift_norms(module: Any, config: HybridConfig) -> None:
    """Store norms about zero, where a folder in mlx's layout has them about one."""
    for part in module.modules():
        if isinstance(part, FAMILIES[config.model_type].norm):
            part.weight -= 1.0


def _as(module: Any, dtype: torch.dtype) -> Any:
    """The module in a type; in float64, with rotary frequencies computed in it."""
    if dtype == torch.float32:
        return module
    module = module.to(dtype)
    with double():
        for part in module.modules():
            if hasattr(part, "inv_freq"):
                part.inv_freq, _ = part.compute_default_rope_parameters(part.config)
    return module
