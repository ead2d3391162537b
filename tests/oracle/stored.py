"""What the oracle computed, as files: `golden/oracle/`.

    manifest.json        format, versions, prompt, and for every model its file, that file's
                         SHA-256, a digest of the weights it was computed from, the drafts of
                         the chain, sensitivities, the smallest distances at a cut, and rows
                         whose two largest logits tie
    MODEL.safetensors    the trajectory, floats in float64; names in `oracle/trajectory.py`,
                         without the logits in parts and token by token, which are `logits` too

Anybody may read them: safetensors and JSON, no PyTorch. What is truncated, altered, or was made
from other weights is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.oracle.models import weights_of
from tests.oracle.trajectory import WAYS, Trajectory

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "oracle"
FORMAT = 1


class StoredError(ValueError):
    """Stored values that may not be used; the message says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """What the manifest says of one model."""

    file: str
    sha256: str
    weights: str
    made_of: str
    tokens: list[int]
    drafts: list[int]
    sensitivity: dict[str, float]
    cuts: dict[str, float]
    ways: float
    ties: dict[str, list[int]]
    measured: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    choices: dict[str, float] = field(default_factory=dict[str, float])


def digest_of(model: str) -> str:
    """A digest of a model's float32 weights: names, shapes and bytes."""
    digest = hashlib.sha256()
    for name, array in sorted(weights_of(model).items()):
        plain = np.array(array)
        digest.update(f"{name} {plain.shape} {plain.dtype}\n".encode() + plain.tobytes())
    return digest.hexdigest()


def read_manifest(folder: Path = FOLDER) -> dict[str, Any]:
    """The manifest, `models` as a mapping from names to `Entry`.

    Raises:
        StoredError: it is missing, no JSON, of another format, or names no model.
    """
    file = folder / "manifest.json"
    try:
        document = json.loads(file.read_text())
        models = {name: Entry(**entry) for name, entry in document["models"].items()}
    except FileNotFoundError:
        raise StoredError(f"{file} is missing; {_HOW}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoredError(f"{file} is no manifest of the oracle ({error}); {_HOW}") from error
    if document.get("format") != FORMAT or not models:
        raise StoredError(f"{file} is of another format than {FORMAT} or empty; {_HOW}")
    return {**document, "models": models}


_HOW = "`python3 noxfile.py -s oracle -- --write` makes it anew"


def read(model: str, folder: Path = FOLDER) -> tuple[Entry, Trajectory]:
    """A model's stored trajectory.

    Raises:
        StoredError: there is none, its file is not the one the manifest names, or the model's
            weights are not those it was computed from.
    """
    models = read_manifest(folder)["models"]
    if model not in models:
        raise StoredError(f"the oracle has nothing stored of {model!r}; {_HOW}")
    entry: Entry = models[model]
    file = folder / entry.file
    if not file.is_file():
        raise StoredError(f"{file} is missing; {_HOW}")
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry.sha256:
        raise StoredError(f"{file} is not the file the manifest names; {_HOW}")
    if digest_of(model) != entry.weights:
        raise StoredError(f"{file} was computed from other weights than the zoo's; {_HOW}")
    trajectory = load_file(file)
    return entry, {**trajectory, **dict.fromkeys(WAYS, trajectory["logits"])}


def write_trajectory(model: str, trajectory: Trajectory, folder: Path = FOLDER) -> tuple[str, str]:
    """Write one trajectory beside its file, which `write_manifest` puts in place.

    Returns:
        The file's name and SHA-256.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{model}.safetensors"
    fresh = file.with_suffix(".partial")
    kept = {name: array for name, array in sorted(trajectory.items()) if name not in WAYS}
    save_file({name: np.ascontiguousarray(array) for name, array in kept.items()}, fresh)
    fresh.chmod(0o644)
    return file.name, hashlib.sha256(fresh.read_bytes()).hexdigest()


def write_manifest(
    models: Mapping[str, Entry], versions: Mapping[str, str], folder: Path = FOLDER
) -> Path:
    """Put every file in place, write the manifest, and remove files it does not name.

    Until here an interruption changes nothing; between two renames it leaves files that the
    manifest does not name, which are refused.
    """
    document = {
        "format": FORMAT,
        "versions": dict(versions),
        "models": {name: asdict(entry) for name, entry in models.items()},
    }
    file = folder / "manifest.json"
    fresh = folder / f"manifest.{os.getpid()}.partial"
    fresh.write_text(json.dumps(document, indent=1) + "\n")
    for entry in models.values():
        (folder / entry.file).with_suffix(".partial").replace(folder / entry.file)
    fresh.replace(file)
    named = {entry.file for entry in models.values()}
    for stale in folder.glob("*.safetensors"):
        if stale.name not in named:
            stale.unlink()
    return file
