"""Checkpoint folders as people have them: quantised, sharded, with the head beside, and broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx_lm.convert import convert

from reference_models.training.ship import TRAINED

QWEN = TRAINED / "qwen3_5-bytes"
Tensors = dict[str, mx.array]


def tensors_of(file: Path) -> tuple[Tensors, dict[str, str]]:
    """Tensors and metadata of a file, in memory."""
    loaded = mx.load(str(file), return_metadata=True)
    tensors, metadata = cast("tuple[Tensors, dict[str, str]]", loaded)
    mx.eval(list(tensors.values()))
    return tensors, metadata


def copied(source: Path, folder: Path) -> Path:
    """A copy of a folder that may be changed."""
    return Path(shutil.copytree(source, folder))


def edited(folder: Path, change: Callable[[Tensors], Any], file: str = "model.safetensors") -> Path:
    """Change a file's tensors in place."""
    tensors, metadata = tensors_of(folder / file)
    change(tensors)
    mx.save_safetensors(str(folder / file), tensors, metadata)
    return folder


def is_head(name: str) -> bool:
    """Whether a tensor is the MTP head's."""
    return name.startswith("mtp.")


def converted(source: Path, folder: Path, bits: int = 0, head_bits: int = 0) -> Path:
    """What mlx-lm's converter makes of a folder, and the head, which it drops, in a side file.

    Args:
        source: in Hugging Face's layout.
        folder: to be made.
        bits: of the trunk; 0 leaves it unquantised.
        head_bits: of the head, in mlx's layout; 0 leaves it as it was, in Hugging Face's.
    """
    convert(str(source), str(folder), quantize=bits > 0, q_bits=bits or None, q_group_size=64)
    head = {n: a for n, a in tensors_of(source / "model.safetensors")[0].items() if is_head(n)}
    if head_bits:
        head = quantised_head(head, head_bits)
    layout = {"format": "mlx" if head_bits else "pt"}
    mx.save_safetensors(str(folder / "mtp.safetensors"), head, layout)
    return folder


def quantised_head(head: Tensors, bits: int, group_size: int = 64) -> Tensors:
    """The head in mlx's layout: matrices quantised, norms about one."""
    made: Tensors = {}
    for name, array in head.items():
        if array.ndim == 1:
            made[name] = array + 1.0
            continue
        parts = mx.quantize(array, group_size=group_size, bits=bits)
        stem = name.removesuffix("weight")
        made |= {
            f"{stem}{p}": a for p, a in zip(("weight", "scales", "biases"), parts, strict=True)
        }
    return made


def sharded(folder: Path, count: int = 3) -> Path:
    """Spread the one file of a folder over shards with an index."""
    tensors, metadata = tensors_of(folder / "model.safetensors")
    names = sorted(tensors)
    index: dict[str, str] = {}
    for number in range(count):
        part = names[number::count]
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        mx.save_safetensors(str(folder / file), {n: tensors[n] for n in part}, metadata)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def in_mlx_layout(source: Path, folder: Path) -> Path:
    """A folder with the head among the trunk's tensors, all of it in mlx's layout."""

    def convert(tensors: Tensors) -> None:
        for name, array in tensors.items():
            about_zero = name.endswith("norm.weight") and "linear_attn" not in name
            if name.endswith("conv1d.weight"):
                tensors[name] = mx.contiguous(array.moveaxis(2, 1))
            elif about_zero or "pre_fc_norm" in name:
                tensors[name] = array + 1.0

    return edited(copied(source, folder), convert)


def with_fused_experts(folder: Path) -> Path:
    """A folder's experts, stored one by one, as Hugging Face's fused tensors."""

    def fuse(tensors: Tensors) -> None:
        for first in [name for name in tensors if name.endswith(".experts.0.up_proj.weight")]:
            before = first.removesuffix("0.up_proj.weight")
            stacks = {
                part: mx.stack(_taken(tensors, before, part))
                for part in ("gate_proj", "up_proj", "down_proj")
            }
            both = [stacks["gate_proj"], stacks["up_proj"]]
            tensors[f"{before}gate_up_proj"] = mx.concatenate(both, axis=1)
            tensors[f"{before}down_proj"] = stacks["down_proj"]

    return edited(folder, fuse)


def _taken(tensors: Tensors, before: str, part: str) -> list[mx.array]:
    count = sum(name.startswith(before) and name.endswith(f"{part}.weight") for name in tensors)
    return [tensors.pop(f"{before}{expert}.{part}.weight") for expert in range(count)]
