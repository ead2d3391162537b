"""The trained checkpoints that come with the project, by name: folders below `trained/`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import mlx.core as mx

from reference_models.config import ConfigError

TRAINED = Path(__file__).parent / "trained"


def shipped() -> tuple[str, ...]:
    """The names of the checkpoints there are."""
    return tuple(sorted(file.parent.name for file in TRAINED.glob("*/config.json")))


def copy_shipped(name: str, folder: Path, dtype: mx.Dtype = mx.bfloat16) -> Path:
    """Copy a trained checkpoint to `folder` and return it.

    Args:
        name: one of `shipped()`.
        folder: does not exist yet.
        dtype: bfloat16, as it was shipped, or float32, in which it is the same numbers.

    Raises:
        ConfigError: there is no such checkpoint, or the type is another one.
    """
    if name not in shipped():
        raise ConfigError(f"no trained model {name!r}; there are {', '.join(shipped())}")
    if dtype not in (mx.bfloat16, mx.float32):
        raise ConfigError(f"trained models are bfloat16, or float32 with the same numbers: {dtype}")
    shutil.copytree(TRAINED / name, folder)
    if dtype == mx.float32:
        _widen(folder)
    return folder


def _widen(folder: Path) -> None:
    """Store bfloat16 tensors as float32."""
    file, config = folder / "model.safetensors", folder / "config.json"
    loaded = mx.load(str(file), return_metadata=True)
    tensors, metadata = cast("tuple[dict[str, mx.array], dict[str, str]]", loaded)
    wide = {n: a.astype(mx.float32) if a.dtype == mx.bfloat16 else a for n, a in tensors.items()}
    mx.eval(wide)  # all is read before the file is written
    mx.save_safetensors(str(file), wide, metadata)
    config.write_text(config.read_text().replace('"bfloat16"', '"float32"'))
