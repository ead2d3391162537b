"""Reading a golden, and refusing one that is not whole.

Each file is held, in this order, against size and hash in the manifest, the JSON Schema beside
it, and the manifest it says it belongs to. Nothing of a file that fails is used.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
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
    BY_HAND,
    DIGESTS,
    MANIFEST,
    ORACLE,
    arrays_file,
    checkpoint_files,
    every_path,
    floats_file,
    id_of,
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
        self._manifest = self._json(MANIFEST, self._plain(MANIFEST).read_bytes(), "manifest")
        self.files = cast("Mapping[str, Mapping[str, Any]]", self._manifest["files"])
        self.id = str(self._manifest["id"])
        self.names = tuple(cast("list[str]", self._manifest["checkpoints"]))
        self.machines = tuple(Machine(**m) for m in self._manifest["floats"])
        if self.id != id_of(self.files):
            raise self._refused(MANIFEST, "its id is not that of the files it lists")
        self._lists_what_it_names()

    def _lists_what_it_names(self) -> None:
        """Checkpoints and machines are those of the files, each with all of its files.

        So a name that is left out of the one is missed in the other.
        """
        keys = [machine.key for machine in self.machines]
        if len(set(keys)) != len(keys):
            raise self._refused(MANIFEST, f"it names a machine twice: {', '.join(sorted(keys))}")
        due = {file for name in self.names for file in (*checkpoint_files(name), tokens_file(name))}
        pairs = [(key, name) for key in keys for name in self.names]
        due |= {file(*pair) for pair in pairs for file in (floats_file, arrays_file)}
        for file in sorted(due - set(self.files)):
            raise GoldenError(f"{self.folder / MANIFEST} lists no {file}; {AGAIN}")
        for file in sorted(set(self.files) - due):
            why = f"it lists {file}, which is of no checkpoint and machine that it names"
            raise self._refused(MANIFEST, why)

    @cached_property
    def stale(self) -> tuple[str, ...]:
        """Files, links and empty folders that belong to nothing."""
        known = {*self.files, *BY_HAND, *oracle_files(self.folder)}
        return tuple(path for path in every_path(self.folder) if path not in known)

    def verify(self) -> int:
        """Read everything; returns the number of files.

        Raises:
            GoldenError: names the first file that is refused.
        """
        for file in self.files:
            self._bytes(file)
        for name in self.names:
            self.tokens(name)
            for machine in self.machines:
                self.floats(machine.key, name)
        self._verify_oracle()
        return len(self.files)

    def _verify_oracle(self) -> None:
        """What another framework computed, where it is there: every file has its hash."""
        for file, digest in _oracle_digests(self.folder).items():
            try:
                content = self._plain(file).read_bytes()
            except OSError as error:
                raise self._refused(file, f"it cannot be read: {error.strerror}") from error
            if hashlib.sha256(content).hexdigest() != digest:
                raise self._refused(file, f"its SHA-256 is not the one in {ORACLE}/{MANIFEST}")

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
        self._named(file, record["checkpoint"], f"checkpoints/{name}")
        for what, ids in _ids(found):
            if len(set(ids)) != len(ids):
                raise self._refused(file, f"it has {what} of the same id: {', '.join(ids)}")
        return found

    def floats(self, key: str, name: str) -> Floats:
        """A float golden, with the bytes of the arrays that are stored."""
        file, beside = floats_file(key, name), arrays_file(key, name)
        record = self._json(file, self._bytes(file), "floats")
        self._belongs(file, str(record["manifest"]))
        machine = Machine(record["backend"], record["mlx"], record["made_on"])
        self._named(file, f"{machine.key}/{record['model']}-{record['dtype']}", f"{key}/{name}")
        if machine != self.machine(key):
            raise self._refused(file, f"made_on is not what {MANIFEST} says of {key}")
        self._named(file, record["stored"], beside)
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
        if set(metadata) != {"manifest"}:
            keys = ", ".join(sorted(metadata))
            raise self._refused(file, f"its metadata is to be its manifest alone, not {keys}")
        mx.eval(list(arrays.values()))
        return {name: array_of(array) for name, array in arrays.items()}

    def _bytes(self, file: str) -> bytes:
        """A file's content, if it is what the manifest says."""
        try:
            content = self._plain(file).read_bytes()
        except OSError as error:
            raise self._refused(file, f"it cannot be read: {error.strerror}") from error
        due = self.files[file]
        if len(content) < due["bytes"]:
            cut = f"it is truncated: {len(content)} of {due['bytes']} bytes"
            raise self._refused(file, cut)
        if len(content) > due["bytes"]:
            long = f"it is too long: {len(content)} bytes, {due['bytes']} are due"
            raise self._refused(file, long)
        if hashlib.sha256(content).hexdigest() != due["sha256"]:
            raise self._refused(file, f"its SHA-256 is not the one in {MANIFEST}")
        return content

    def _plain(self, file: str) -> Path:
        """A file's path, if no link is on the way to it."""
        path = self.folder / file
        if path.resolve() != self.folder.resolve() / file:
            raise self._refused(
                file, "there is a link on the way to it; a golden holds files alone"
            )
        return path

    def _json(self, file: str, content: bytes, schema: str) -> dict[str, Any]:
        try:
            document = strict_json(content)
        except (ValueError, RecursionError) as error:
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
            content = file.read_bytes()
        except OSError as error:
            raise GoldenError(f"{file}: no schema to hold goldens against: {error}") from error
        if hashlib.sha256(content).hexdigest() != DIGESTS[name]:
            why = "it is not the schema of this version of the format (`files.DIGESTS`)"
            raise OtherFormat(f"{file}: {why}; {AGAIN}")
        return json.loads(content)

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


def strict_json(content: bytes) -> Any:
    """JSON as any reader takes it: no key twice, no NaN, no infinity.

    Raises:
        ValueError: it is none.
        RecursionError: it is too deep.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice!r} stands there twice")
        return dict(pairs)

    def finite(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is no number of JSON")
        return value

    return json.loads(content, object_pairs_hook=once, parse_constant=finite, parse_float=finite)


def oracle_files(folder: Path) -> tuple[str, ...]:
    """The files of `oracle/` that belong there, its manifest first; none where that is not."""
    if not (folder / ORACLE / MANIFEST).is_file():
        return ()
    return f"{ORACLE}/{MANIFEST}", *_oracle_digests(folder)


def _oracle_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the oracle's files, as its manifest says."""
    manifest = folder / ORACLE / MANIFEST
    if not manifest.is_file():
        return {}
    try:
        models = strict_json(manifest.read_bytes())["models"].values()
        return {f"{ORACLE}/{model['file']}": str(model["sha256"]) for model in models}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        how = "`python3 noxfile.py -s oracle -- --write` makes it anew"
        raise GoldenError(
            f"{manifest}: it is no manifest of the oracle ({error}); {how}"
        ) from error


def _ids(tokens: Tokens) -> Iterator[tuple[str, list[str]]]:
    yield "vectors", [vector.id for vector in tokens.vectors]
    for vector in tokens.vectors:
        yield f"scripts of {vector.id}", [script.id for script in vector.scripts]


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
