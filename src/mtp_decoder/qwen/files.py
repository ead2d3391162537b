"""The safetensors files of a folder by their headers, checked before anything is loaded.

A checkpoint is one file or several with an index; the MTP head's `mtp.*` are among them, or in a
file of their own beside them (mlx-lm drops them when it converts). Whatever is missing or cut short
is named here, where mlx would read garbage, or say of which tensor it could not read how much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from mtp_decoder.errors import CheckpointError
from mtp_decoder.experts.shards import INDEX, Stored, read_header

_TRUNK = "model"
"""What mlx-lm's files begin with: it loads all of those, in no order."""


@dataclass(frozen=True)
class Files:
    """Every tensor of a folder.

    Attributes:
        paths: the files, by number.
        tensors: where each tensor lies, and its shape.
        formats: what each file's metadata says of its layout: `pt`, `mlx` or nothing.
    """

    paths: tuple[Path, ...]
    tensors: dict[str, Stored]
    formats: tuple[str, ...]

    def load(self, names: Iterable[str]) -> dict[str, mx.array]:
        """These tensors, read from disk when they are used.

        Raises:
            CheckpointError: mlx cannot read a file, of a type it does not have, say.
        """
        wanted = list(names)
        opened: dict[int, dict[str, mx.array]] = {}
        for number in sorted({self.tensors[name].file for name in wanted}):
            opened[number] = _opened(self.paths[number])
        return {name: opened[self.tensors[name].file][name] for name in wanted}

    def holding(self, names: Iterable[str]) -> tuple[int, ...]:
        """The numbers of the files that hold these tensors."""
        return tuple(sorted({self.tensors[name].file for name in names}))


def _opened(path: Path) -> dict[str, mx.array]:
    try:
        return cast("dict[str, mx.array]", mx.load(str(path)))
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(f"mlx cannot read {path}: {error}") from error


def is_head(name: str) -> bool:
    """Whether a tensor is the MTP head's."""
    return name.startswith("mtp.") or ".mtp." in name


def read_files(folder: Path) -> Files:
    """Read the headers of all safetensors files of a folder.

    Raises:
        CheckpointError: there is no weight, a file is cut short or no safetensors file, the index
            cannot be read or names what is not there, or a tensor is in two files.
    """
    if not list(folder.glob("model*.safetensors")):
        raise CheckpointError(f"{folder} has no model*.safetensors")
    listed = _index(folder)
    paths = tuple(sorted(folder.glob("*.safetensors")))
    tensors: dict[str, Stored] = {}
    places: set[tuple[str, str]] = set()
    for number, path in enumerate(paths):
        for name, stored in read_header(number, path).items():
            places.add((name, path.name))
            other = paths[tensors[name].file].name if name in tensors else ""
            if other and is_head(name):
                raise CheckpointError(
                    f"{folder} has {name} twice, in {other} and in {path.name}: remove one, so "
                    "that it is known which head is meant"
                )
            if other.startswith(_TRUNK) and path.name.startswith(_TRUNK):
                raise CheckpointError(
                    f"{folder} has {name} twice, in {other} and in {path.name}: two conversions "
                    "lie there; remove one"
                )
            tensors[name] = stored
    gone = sorted(set(listed.items()) - places)
    if gone:
        name, file = gone[0]
        raise CheckpointError(f"{folder / file} has no {name}, which {INDEX} lists there")
    return Files(paths, tensors, tuple(_format(path) for path in paths))


def _index(folder: Path) -> dict[str, str]:
    """The file of every tensor by the index; empty without one."""
    file = folder / INDEX
    if not file.exists():
        return {}
    try:
        listed: object = json.loads(file.read_text())["weight_map"]
        pairs = cast("dict[str, str]", listed).items()
        found = {str(name): str(shard) for name, shard in pairs}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} cannot be read as an index: {error!r}") from error
    for shard in sorted(set(found.values())):
        if not (folder / shard).is_file():
            raise CheckpointError(f"{folder} lacks {shard}, which {INDEX} names: fetch it again")
    return found


def _format(path: Path) -> str:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        document: Any = json.loads(file.read(length))
    return str((document.get("__metadata__") or {}).get("format", ""))
