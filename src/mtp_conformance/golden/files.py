"""Where the files of a golden lie, and how they are written down."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

FOLDER = "golden"
"""Of the suite root."""

MANIFEST = "manifest.json"
OWNED = ("checkpoints", "tokens", "floats")
"""Folders of which every file is in the manifest; the rest of the folder is written by hand."""

WEIGHTS = "model.safetensors"
"""Of a checkpoint."""

CHECKPOINT = ("config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json")
"""Files of a checkpoint, all of them."""

SCHEMAS = "schema"
"""Folder of the JSON Schemas."""

DIGESTS = {
    "manifest": "e1ec5093a489185c692c87de4c5b09e1831ac9f4fedb81a3ea8012cc5905d9bf",
    "tokens": "873abcbe08a01f3f35032735d91dc34d14cc85d115c2c5fe70ece779e0422e43",
    "floats": "6796e3812515009435e45d6fc63301ff76f40f82229dd190953b7c2117e01976",
}
"""SHA-256 of the schemas that this version of the format has: what validates is pinned, too."""

BY_HAND = ("README.md", MANIFEST, *(f"{SCHEMAS}/{kind}.schema.json" for kind in DIGESTS))
"""Files beside those in the manifest."""

ORACLE = "oracle"
"""Folder of what another framework computed; it has a manifest of its own."""

_ROOMS = tuple(f"{room}/" for room in OWNED)
_WIDTH = 160


def tokens_file(name: str) -> str:
    """The token golden of a checkpoint."""
    return f"tokens/{name}.json"


def floats_file(key: str, name: str) -> str:
    """The float golden of a checkpoint; its arrays lie beside it, as `.safetensors`."""
    return f"floats/{key}/{name}.json"


def arrays_file(key: str, name: str) -> str:
    """The arrays of a float golden that are stored in full."""
    return f"floats/{key}/{name}.safetensors"


def checkpoint_files(name: str) -> tuple[str, ...]:
    """The files of a checkpoint."""
    return tuple(f"checkpoints/{name}/{file}" for file in CHECKPOINT)


def owned_files(folder: Path) -> tuple[str, ...]:
    """Every file of the folders in the manifest, as they are named there."""
    return tuple(name for name in every_path(folder) if name.startswith(_ROOMS))


def every_path(folder: Path) -> tuple[str, ...]:
    """Every file below a folder, link (none is followed) and empty folder, sorted."""
    found: list[str] = []
    for at, rooms, files in os.walk(folder):
        links = [room for room in rooms if (Path(at) / room).is_symlink()]
        found += [(Path(at) / name).relative_to(folder).as_posix() for name in (*files, *links)]
        if not rooms and not files and Path(at) != folder:
            found.append(Path(at).relative_to(folder).as_posix())
    return tuple(sorted(found))


def id_of(files: Mapping[str, Any]) -> str:
    """The manifest's id: SHA-256 of what `sha256sum` prints for checkpoints and tokens.

    Args:
        files: the manifest's `files`.
    """
    kept = (name for name in sorted(files) if name.startswith(("checkpoints/", "tokens/")))
    lines = "".join(f"{files[name]['sha256']}  {name}\n" for name in kept)
    return hashlib.sha256(lines.encode()).hexdigest()


def pinned(folder: Path, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The manifest's entries of files: size and SHA-256."""
    entries: dict[str, dict[str, Any]] = {}
    for name in names:
        content = (folder / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries[name] = {"bytes": len(content), "sha256": digest}
    return entries


def as_text(document: Mapping[str, Any]) -> str:
    """JSON with a line for whatever fits into one."""
    return _laid_out(document, "") + "\n"


def _laid_out(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= _WIDTH or not isinstance(value, dict | list):
        return flat
    deeper = f"{indent} "
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        lines = [f"{deeper}{json.dumps(k)}: {_laid_out(v, deeper)}" for k, v in items]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    parts = cast("list[Any]", value)
    if not any(isinstance(part, dict | list) for part in parts):
        return flat  # token ids stay on one line, however many
    lines = [f"{deeper}{_laid_out(part, deeper)}" for part in parts]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"
