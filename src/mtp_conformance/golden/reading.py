"""Reading a golden, and refusing one that is not whole.

Each file is held, in this order, against size and hash in the manifest, the JSON Schema beside
it, and the manifest it says it belongs to. Nothing of a file that fails is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from mtp_conformance.golden.contents import (
    VERSION,
    Array,
    Floats,
    GoldenError,
    Machine,
    OtherFormat,
    Round,
    Script,
    Tokens,
    Vector,
    array_of,
)
from mtp_conformance.golden.files import (
    MANIFEST,
    arrays_file,
    floats_file,
    id_of,
    owned_files,
    tokens_file,
)

AGAIN = "get it back from version control, or make all of it again: `python3 noxfile.py -s golden`"


class Golden:
    """A golden folder. Opening reads the manifest; every other file is checked as it is read.

    Raises:
        GoldenError: there is none, or its manifest is refused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / MANIFEST).is_file():
            raise GoldenError(f"{folder} holds no golden: there is no {MANIFEST}; {AGAIN}")
        self._manifest = self._json(MANIFEST, (folder / MANIFEST).read_bytes(), "manifest")
        self.files = cast("Mapping[str, Mapping[str, Any]]", self._manifest["files"])
        self.id = str(self._manifest["id"])
        self.names = tuple(cast("list[str]", self._manifest["checkpoints"]))
        self.machines = tuple(Machine(**m) for m in self._manifest["floats"])
        if self.id != id_of(self.files):
            raise GoldenError(
                f"{folder / MANIFEST}: its id is not that of the files it lists; {AGAIN}"
            )
        for file in self._due():
            if file not in self.files:
                raise GoldenError(f"{folder / MANIFEST} lists no {file}; {AGAIN}")

    def _due(self) -> list[str]:
        """What the manifest has to list."""
        due = [tokens_file(name) for name in self.names]
        due += [f"checkpoints/{name}/model.safetensors" for name in self.names]
        pairs = [(machine.key, name) for machine in self.machines for name in self.names]
        return due + [file(*pair) for pair in pairs for file in (floats_file, arrays_file)]

    @cached_property
    def stale(self) -> tuple[str, ...]:
        """Files that the manifest does not list."""
        return tuple(file for file in owned_files(self.folder) if file not in self.files)

    def verify(self) -> int:
        """Read everything; returns the number of files.

        Raises:
            GoldenError: names the first file that is refused.
        """
        for name in self.names:
            self.checkpoint(name)
            self.tokens(name)
            for machine in self.machines:
                self.floats(machine.key, name)
        return len(self.files)

    def machine(self, key: str) -> Machine | None:
        """The machine of a float golden; None if there is none of that key."""
        return next((machine for machine in self.machines if machine.key == key), None)

    def checkpoint(self, name: str) -> Path:
        """A checkpoint's folder, once its files are known to be whole."""
        prefix = f"checkpoints/{name}/"
        for file in self.files:
            if file.startswith(prefix):
                self._bytes(file)
        return self.folder / prefix

    def tokens(self, name: str) -> Tokens:
        """A token golden."""
        file = tokens_file(name)
        record = self._json(file, self._bytes(file), "tokens")
        found = Tokens(record["model"], record["dtype"], tuple(map(_vector, record["vectors"])))
        self._named(file, found.name, name)
        return found

    def floats(self, key: str, name: str) -> Floats:
        """A float golden, with the bytes of the arrays that are stored."""
        file, beside = floats_file(key, name), arrays_file(key, name)
        record = self._json(file, self._bytes(file), "floats")
        self._belongs(file, str(record["manifest"]))
        machine = Machine(record["backend"], record["mlx"], record["made_on"])
        self._named(file, f"{machine.key}/{record['model']}-{record['dtype']}", f"{key}/{name}")
        stored = self._stored(beside)
        arrays = {n: _array(entry, stored.get(n)) for n, entry in record["arrays"].items()}
        for array, entry in record["arrays"].items():
            if entry["stored"] != (array in stored):
                raise self._refused(file, f"{array} and what {beside} stores contradict each other")
            if array in stored and stored[array].same != arrays[array].same:
                raise self._refused(beside, f"{array} has other bytes than its hash in {file}")
        return Floats(record["model"], record["dtype"], machine, arrays)

    def _stored(self, file: str) -> dict[str, Array]:
        self._bytes(file)
        try:
            loaded = mx.load(str(self.folder / file), return_metadata=True)
        except RuntimeError as error:
            raise self._refused(file, f"it is no safetensors file: {error}") from error
        arrays, metadata = cast("tuple[dict[str, mx.array], dict[str, str]]", loaded)
        self._belongs(file, metadata.get("manifest", "none"))
        mx.eval(list(arrays.values()))
        return {name: array_of(array) for name, array in arrays.items()}

    def _bytes(self, file: str) -> bytes:
        """A file's content, if it is what the manifest says."""
        try:
            content = (self.folder / file).read_bytes()
        except OSError as error:
            raise self._refused(file, f"it cannot be read: {error.strerror}") from error
        due = self.files[file]
        if len(content) < due["bytes"]:
            cut = f"it is truncated: {len(content)} of {due['bytes']} bytes"
            raise self._refused(file, cut)
        if hashlib.sha256(content).hexdigest() != due["sha256"]:
            raise self._refused(file, f"its SHA-256 is not the one in {MANIFEST}")
        return content

    def _json(self, file: str, content: bytes, schema: str) -> dict[str, Any]:
        try:
            document = json.loads(content)
        except ValueError as error:
            raise self._refused(file, f"it is no whole JSON: {error}") from error
        version = cast("Any", document).get("version") if isinstance(document, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise OtherFormat(self._why(file, f"it is of version {version}, this reads {VERSION}"))
        validator = Draft202012Validator(self._schema(schema))
        found = best_match(validator.iter_errors(document))
        if found is not None:
            where = "".join(f"[{part!r}]" for part in found.absolute_path) or "the document"
            message = f"{where}: {found.message[:200]} (schema/{schema}.schema.json)"
            raise self._refused(file, message)
        return cast("dict[str, Any]", document)

    def _schema(self, name: str) -> Mapping[str, Any]:
        file = self.folder / "schema" / f"{name}.schema.json"
        try:
            return json.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise GoldenError(f"{file}: no schema to hold goldens against: {error}") from error

    def _belongs(self, file: str, manifest: str) -> None:
        if manifest != self.id:
            raise self._refused(
                file,
                f"it belongs to manifest {manifest[:12]}, this is {self.id[:12]}: other "
                "checkpoints, prompts or drafts",
            )

    def _named(self, file: str, found: str, due: str) -> None:
        if found != due:
            raise self._refused(file, f"it says that it is of {found}")

    def _refused(self, file: str, why: str) -> GoldenError:
        return GoldenError(self._why(file, why))

    def _why(self, file: str, why: str) -> str:
        return f"{self.folder / file}: {why}; {AGAIN}"


def _array(entry: Mapping[str, Any], stored: Array | None) -> Array:
    shape = tuple(entry["shape"])
    return Array(entry["dtype"], shape, entry["sha256"], None if stored is None else stored.data)


def _vector(record: Mapping[str, Any]) -> Vector:
    scripts = tuple(Script(s["id"], tuple(map(_round, s["rounds"]))) for s in record["scripts"])
    prompt, stream = tuple(record["prompt"]), tuple(record["stream"])
    return Vector(record["id"], prompt, stream, record["clear_by"], scripts)


def _round(record: Mapping[str, Any]) -> Round:
    return Round(
        drafts=tuple(record["drafts"]),
        accepted=record["accepted"],
        emitted=tuple(record["emitted"]),
        target_tokens=record["target_tokens"],
        head_pairs=record["head_pairs"],
    )
