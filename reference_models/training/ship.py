"""From a finished run to the folder that is shipped: an ordinary checkpoint and its papers.

Beside config, weights in bfloat16 and tokenizer the folder holds

- `recipe.json`: the recipe, the versions it ran on, digests of the texts and of every file here,
  the loss on held-out text;
- `curve.csv`: the losses on the way, in nats a token.

Norms are rounded so that 1 + w is a bfloat16 number: loaders that store norms about one then read
the same model to the bit.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np

from reference_models.checkpoint import read, write
from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead
from reference_models.training.loop import Arrays, Curve, Training
from reference_models.training.losses import head_losses, log_softmax, residual
from reference_models.training.recipe import Recipe
from reference_models.training.texts import FOLDER, NAMES, held_out, text
from reference_models.weights import Fill
from reference_models.zoo import tensors_of

TRAINED = FOLDER.parent
MANIFEST, CURVE = "recipe.json", "curve.csv"
EXCERPT = (2, 128)
"""Rows and tokens a row of the held-out text on which the recorded loss is computed."""


def in_bfloat16(recipe: Recipe, arrays: Arrays) -> Arrays:
    """The weights as they are shipped; A_log stays float32, as in the zoo."""
    found: Arrays = {}
    for name, tensor in tensors_of(recipe.config).items():
        array = arrays[name]
        if tensor.fill is Fill.NORM_ABOUT_ZERO:
            array = (array + 1.0).astype(mx.bfloat16).astype(mx.float32) - 1.0
        found[name] = array if name.endswith("A_log") else array.astype(mx.bfloat16)
    return found


def held_out_losses(target: HybridModel, head: MTPHead, depths: int) -> dict[str, list[float]]:
    """The target's loss and the head's by depth on the excerpt of each text, in nats a token."""
    rows, length = EXCERPT
    found: dict[str, list[float]] = {}
    for name in NAMES:
        tokens = held_out(text(name))[: rows * (length + 1)].reshape(rows, length + 1)
        inputs, following = mx.array(tokens[:, :-1]), mx.array(tokens[:, 1:, None])
        x = residual(target, inputs)
        law = log_softmax(target.logits(x))
        own = -mx.take_along_axis(law, following, axis=-1).mean()
        both = mx.stack([own, *head_losses(depths, head, x, inputs, law)])
        found[name] = [round(value, 4) for value in cast("list[float]", both.tolist())]
    return found


def ship(training: Training, folder: Path) -> Path:
    """Write the folder of a finished run; it is whole, or what it was before.

    Raises:
        ValueError: the run has steps left.
    """
    if not training.done:
        left = training.recipe.steps - training.at
        raise ValueError(f"{training.name} has {left} steps left; only a finished run is shipped")
    temporary = folder.with_name(folder.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    write(training.recipe.config, in_bfloat16(training.recipe, training.arrays), temporary)
    _write_curve(training.curve, training.recipe, temporary / CURVE)
    manifest = _manifest(training.name, training.recipe, temporary)
    (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    return folder


def columns(recipe: Recipe) -> list[str]:
    """Names of the curve's columns."""
    heads = [f"head_{depth}" for depth in range(1, recipe.head_depths + 1)]
    return ["step", "whole", "target", *heads, "index"]


def _write_curve(curve: Curve, recipe: Recipe, file: Path) -> None:
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened, lineterminator="\n")
        rows.writerow(columns(recipe))
        rows.writerows([int(row[0]), *(f"{value:.4f}" for value in row[1:])] for row in curve)


def _manifest(name: str, recipe: Recipe, folder: Path) -> Mapping[str, Any]:
    target, head = read(folder)
    return {
        "name": name,
        "recipe": asdict(recipe),
        "parameters": sum(int(np.prod(t.shape)) for t in tensors_of(recipe.config).values()),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("mlx", "mlx-lm", "numpy")},
            "products": _products(),
            "machine": f"{platform.system()} {platform.machine()}, MLX's CPU backend",
        },
        "texts": json.loads((FOLDER / "texts.json").read_text()),
        "held_out": held_out_losses(target, head, recipe.head_depths),
        "files": {file.name: digest(file) for file in _files(folder)},
    }


def _products() -> str:
    """Which BLAS multiplies: one put in front of MLX's by the loader, or MLX's own."""
    return Path(os.environ.get("LD_PRELOAD", "")).name or "the BLAS that MLX brings"


def _files(folder: Path) -> Sequence[Path]:
    return sorted(file for file in folder.iterdir() if file.name != MANIFEST)


def digest(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
