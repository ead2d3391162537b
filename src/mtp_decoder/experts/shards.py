"""Where every tensor of a checkpoint lies on disk, and reading pieces of it.

A safetensors file is 8 bytes with the length of its header, the header as JSON (for every
tensor its dtype, shape and range of bytes) and the bytes. Pieces are read with `os.preadv`: it
needs no position, so that threads share a descriptor, and a file that has become shorter is an
error where a mapped one would be a signal.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from mtp_decoder.errors import CheckpointError, ExpertReadError

INDEX = "model.safetensors.index.json"
DTYPES = {
    "F32": mx.float32,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "U32": mx.uint32,
    "U8": mx.uint8,
}
_LENGTH = 8
_POINTER = b"version "
"""How the few lines begin that Git LFS leaves where a file was not fetched."""


@dataclass(frozen=True)
class Stored:
    """A tensor on disk: its file's number, where it begins there, and what it is."""

    file: int
    start: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of a file."""

    file: int
    start: int
    nbytes: int


class Shards:
    """The safetensors files of a folder, open for reading; closed with the object.

    Raises:
        CheckpointError: there is none, one that the index lists is missing, one is no
            safetensors file or is shorter than its header says, or two have the same tensor.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = _files(folder)
        self._descriptors: list[int] = []
        self._close = weakref.finalize(self, _close, self._descriptors)
        self.tensors: dict[str, Stored] = {}
        for number, path in enumerate(self.paths):
            self._descriptors.append(_open(path))
            found = read_header(number, path)
            self._refuse_twice(found)
            self.tensors |= found

    def _refuse_twice(self, found: Mapping[str, Stored]) -> None:
        """Refuse tensors that an earlier file has, too: which of them is the model's is unknown."""
        for name in sorted(self.tensors.keys() & found.keys()):
            files = sorted(self.paths[at[name].file].name for at in (self.tensors, found))
            raise CheckpointError(
                f"{self.paths[0].parent} has {name} in {' and in '.join(files)}: leave one of them"
            )

    def read(self, piece: Piece, into: memoryview) -> int:
        """Fill `into`, of the piece's length, and return that length.

        Raises:
            ExpertReadError: the file ends too early, or cannot be read.
        """
        path, done = self.paths[piece.file], 0
        while done < piece.nbytes:
            try:
                count = os.preadv(self._descriptors[piece.file], [into[done:]], piece.start + done)
            except OSError as error:
                raise ExpertReadError(f"{path} cannot be read: {error}") from error
            if not count:
                raise ExpertReadError(
                    f"{path} ends at byte {piece.start + done}, inside an expert of "
                    f"{piece.nbytes} bytes: it was cut short; put the whole file back"
                )
            done += count
        return done


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.is_file():
        try:
            listed = cast("dict[str, Any]", json.loads(index.read_text()))["weight_map"]
            names = sorted(set(cast("dict[str, str]", listed).values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{index} has no weight_map: {error}") from error
        for name in names:
            if not (folder / name).is_file():
                raise CheckpointError(f"{folder} lacks {name}, which {INDEX} lists: fetch it again")
        # A file that the index does not list may hold an MTP head, which mlx-lm's converter drops.
        beside = [p for p in sorted(folder.glob("*.safetensors")) if p.name not in names]
        return [*(folder / name for name in names), *beside]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise CheckpointError(f"{folder} has no *.safetensors to read experts from")
    return found


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be opened: {error}") from error


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def read_header(number: int, path: Path) -> dict[str, Stored]:
    """Every tensor of a file by its header.

    Raises:
        CheckpointError: it is no safetensors file, or shorter than its header says.
    """
    try:
        size, file = path.stat().st_size, path.open("rb")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        first = file.read(_LENGTH)
        if first == _POINTER:
            raise CheckpointError(
                f"{path} is a Git LFS pointer in place of the weights: fetch them (git lfs pull)"
            )
        length = int.from_bytes(first, "little")
        if size < _LENGTH or length > size - _LENGTH:
            raise CheckpointError(f"{path} is no whole safetensors file: its header is cut short")
        try:
            document = cast("dict[str, Any]", json.loads(file.read(length)))
            found = {
                name: _stored(number, _LENGTH + length, entry)
                for name, entry in document.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is no safetensors file: {error}") from error
    due = max((stored.start + stored.nbytes for stored in found.values()), default=0)
    if size < due:
        raise CheckpointError(
            f"{path} has {size} bytes, its header says {due}: it was cut short; fetch it again"
        )
    return found


def _stored(number: int, base: int, entry: dict[str, Any]) -> Stored:
    first, last = entry["data_offsets"]
    return Stored(number, base + first, last - first, tuple(entry["shape"]), entry["dtype"])
