"""Writing the files of a golden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mtp_conformance.golden.contents import (
    STORED_BYTES,
    STORED_WHOLE,
    VERSION,
    Array,
    Floats,
    Machine,
    Tokens,
)
from mtp_conformance.golden.files import (
    MANIFEST,
    arrays_file,
    as_text,
    floats_file,
    id_of,
    owned_files,
    pinned,
    tokens_file,
)


def write_tokens(folder: Path, tokens: Tokens) -> None:
    """Write a token golden into a golden folder."""
    document = {
        "format": "mtp-conformance/golden-tokens",
        "version": VERSION,
        "checkpoint": f"checkpoints/{tokens.name}",
        **asdict(tokens),
    }
    _write(folder / tokens_file(tokens.name), document)


def write_floats(folder: Path, floats: Floats, manifest: str) -> None:
    """Write a float golden into a golden folder; small arrays and logits in full.

    Args:
        folder: the golden folder.
        floats: all arrays with their bytes.
        manifest: the id of the manifest it belongs to.
    """
    key, name = floats.machine.key, f"{floats.model}-{floats.dtype}"
    kept = {n: a for n, a in floats.arrays.items() if is_stored(n, a)}
    document = {
        "format": "mtp-conformance/golden-floats",
        "version": VERSION,
        "manifest": manifest,
        "model": floats.model,
        "dtype": floats.dtype,
        **asdict(floats.machine),
        "stored": arrays_file(key, name),
        "arrays": {n: _entry(a, n in kept) for n, a in floats.arrays.items()},
    }
    _write(folder / floats_file(key, name), document)
    stored = {n: mlx_array(a) for n, a in kept.items()}
    mx.save_safetensors(str(folder / arrays_file(key, name)), stored, {"manifest": manifest})


def is_stored(name: str, array: Array) -> bool:
    """Whether an array is stored in full; the logits of a stream always are."""
    if array.data is None:
        return False
    small = len(array.data) <= STORED_BYTES
    return small or name.count("/") == 1 or name.startswith(STORED_WHOLE)


def _entry(array: Array, stored: bool) -> dict[str, Any]:
    entry = {"dtype": array.dtype, "shape": list(array.shape), "sha256": array.sha256}
    return {**entry, "stored": stored}


def mlx_array(array: Array) -> mx.array:
    """An array of mlx from its bytes, which must be there."""
    assert array.data is not None
    dtype = getattr(mx, array.dtype)
    words = np.frombuffer(array.data, dtype=f"<u{dtype.size}").reshape(array.shape)
    return mx.array(words).view(dtype)


def write_manifest(
    folder: Path, names: Sequence[str], machines: Sequence[Machine], without: Sequence[str] = ()
) -> str:
    """Write the manifest over what lies in a golden folder; returns its id.

    Args:
        folder: with all other files.
        names: of the checkpoints.
        machines: of the float goldens.
        without: files that belong to no golden any more.
    """
    kept = tuple(file for file in owned_files(folder) if file not in set(without))
    files = pinned(folder, kept)
    document = {
        "format": "mtp-conformance/golden",
        "version": VERSION,
        "id": id_of(files),
        "checkpoints": list(names),
        "floats": [asdict(machine) for machine in machines],
        "files": files,
    }
    _write(folder / MANIFEST, document)
    return str(document["id"])


def _write(file: Path, document: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_text(document), encoding="utf-8")
