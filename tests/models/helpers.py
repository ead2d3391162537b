"""Arrays as plain Python values, and checkpoint files as dictionaries, with types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import mlx.core as mx


def number(array: mx.array) -> Any:
    """The one value of an array."""
    return array.item()


def listed(array: mx.array) -> Any:
    """The values of an array, as nested lists."""
    return array.tolist()


def load_file(folder: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Tensors and metadata of a folder's one file of weights, in memory."""
    loaded = mx.load(str(folder / "model.safetensors"), return_metadata=True)
    tensors, metadata = cast("tuple[dict[str, mx.array], dict[str, str]]", loaded)
    mx.eval(list(tensors.values()))
    return tensors, metadata


def save_file(folder: Path, tensors: dict[str, mx.array], metadata: dict[str, str]) -> None:
    """Write a folder's one file of weights."""
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata)
