"""Goldens of git revisions, unpacked beside each other to be compared."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtp_conformance.golden.checking import compare_checkpoints
from mtp_conformance.golden.comparing import Change, compare_arrays, compare_tokens
from mtp_conformance.golden.contents import Arrays, GoldenError, OtherFormat, component_of
from mtp_conformance.golden.documents import compare_documents
from mtp_conformance.golden.explaining import nearest
from mtp_conformance.golden.files import (
    FOLDER,
    MANIFEST,
    ORACLE,
    SCHEMAS,
    WEIGHTS,
    arrays_file,
    floats_file,
    tokens_file,
)
from mtp_conformance.golden.leftovers import every_file, leftovers
from mtp_conformance.golden.reading import Golden
from mtp_conformance.golden.safetensors_file import read_arrays


def unpack(root: Path, revision: str, into: Path) -> Path | None:
    """Write the golden folder of a git revision below `into`; None where it has none.

    Raises:
        GoldenError: no such revision, no git, or no repository.
    """
    commit = _git(
        root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    if commit is None:
        raise GoldenError(f"git knows no revision {revision!r} in {root}; name a commit or branch")
    name = commit.decode().strip()
    packed = _git(root, "archive", "--format=tar", name, FOLDER)
    if packed is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        into.mkdir(parents=True)
        archive.extractall(into, filter="data")
    folder = into / FOLDER
    return folder if (folder / MANIFEST).is_file() else None


def _git(root: Path, *words: str) -> bytes | None:
    """What git prints; None if it ends with an error."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    except OSError as error:
        raise GoldenError(f"cannot run git: {error}") from error
    return done.stdout if done.returncode == 0 else None


def compare_folders(old: Path, new: Path) -> list[Change]:
    """Everything that differs between two golden folders: what it means, then what is left.

    Raises:
        GoldenError: one is not whole. One of another format is: its files are compared by bytes.
    """
    try:
        return compare(Golden(old), Golden(new))
    except OtherFormat as error:
        what = f"values cannot be compared, bytes are: {error}"
        changes = [Change("golden", "format", "all of it", what, None, len(every_file(new)))]
        changes += _schemas(old, new)
        return [*changes, *leftovers(old, new, ("", ""), changes)]


def compare(old: Golden, new: Golden) -> list[Change]:
    """Everything that differs between two goldens, each refused if it is not whole."""
    changes: list[Change] = []
    for name in (*old.names, *(n for n in new.names if n not in old.names)):
        if name not in new.names or name not in old.names:
            changes.append(_whole(old, new, name))
            continue
        found = compare_checkpoints(name, old.checkpoint(name), new.checkpoint(name))
        changes += [replace(c, files=(_checkpoint_file(name, c.where),)) for c in found]
        found = compare_tokens(name, old.tokens(name), new.tokens(name))
        changes += [replace(c, files=(tokens_file(name),)) for c in found]
        changes += _floats(old, new, name)
    changes += _machines(old, new)
    changes += _schemas(old.folder, new.folder)
    changes += _oracles(old.folder / ORACLE, new.folder / ORACLE)
    return [*changes, *leftovers(old.folder, new.folder, (old.id, new.id), changes)]


def _whole(old: Golden, new: Golden, name: str) -> Change:
    """A checkpoint that one of them does not have."""
    what = "is gone" if name in old.names else "is new"
    keys = {machine.key for machine in (*old.machines, *new.machines)}
    files = [f"checkpoints/{name}/", tokens_file(name)]
    files += [file(key, name) for key in keys for file in (floats_file, arrays_file)]
    return Change(name, "checkpoint", "all of it", what, None, 1, files=tuple(files))


def _checkpoint_file(name: str, where: str) -> str:
    """The file a change of a checkpoint is in: other files by their names, or the weights."""
    return f"checkpoints/{name}/{where if where.endswith('.json') else WEIGHTS}"


def _machines(old: Golden, new: Golden) -> list[Change]:
    """Machines that are new or gone, or of which something else is said."""
    changes: list[Change] = []
    keys = [{machine.key for machine in golden.machines} for golden in (old, new)]
    for key in sorted(keys[0] ^ keys[1]):
        what = "are gone" if key in keys[0] else "are new"
        files = (f"floats/{key}/",)
        count = len(new.names)
        changes.append(Change(key, "floats", "all of them", what, None, count, files=files))
    for machine in new.machines:
        before = old.machine(machine.key)
        if before is not None:
            found = compare_documents(
                machine.key, "made on", dict(before.made_on), dict(machine.made_on)
            )
            files = (MANIFEST, *(floats_file(machine.key, name) for name in new.names))
            changes += [replace(change, files=files) for change in found]
    return changes


def _schemas(old: Path, new: Path) -> list[Change]:
    changes: list[Change] = []
    names = {p.name for at in (old, new) for p in (at / SCHEMAS).glob("*.json")}
    for file in (f"{SCHEMAS}/{name}" for name in sorted(names)):
        if (old / file).is_file() and (new / file).is_file():
            found = compare_documents(file, "schema", _document(old / file), _document(new / file))
            changes += [replace(change, files=(file,)) for change in found]
    return changes


def _oracles(old: Path, new: Path) -> list[Change]:
    """What another framework computed: arrays, and what its manifest says of them."""
    if not ((old / MANIFEST).is_file() and (new / MANIFEST).is_file()):
        return []
    before, after = (_document(at / MANIFEST) for at in (old, new))
    models = [document.pop("models") for document in (before, after)]
    digests = [{m: said.pop("sha256") for m, said in of.items()} for of in models]
    manifest = (f"{ORACLE}/{MANIFEST}",)
    found = list(compare_documents(ORACLE, "manifest", before, after))
    for model in {**models[0], **models[1]}:
        found += compare_documents(
            f"{ORACLE}/{model}", "manifest", models[0].get(model), models[1].get(model)
        )
    changes = [replace(change, files=manifest) for change in found]
    for model in (m for m in models[0] if m in models[1]):
        if digests[0][model] != digests[1][model]:
            file = str(models[1][model]["file"])
            was, now = (
                read_arrays(at / str(of[model]["file"]))[0]
                for at, of in zip((old, new), models, strict=True)
            )
            found = compare_arrays(f"{ORACLE}/{model}", was, now)
            changes += [replace(c, files=(f"{ORACLE}/{file}", *manifest)) for c in found]
    return changes


def _document(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise GoldenError(f"{file}: it is no whole JSON: {error}") from error


def _floats(old: Golden, new: Golden, name: str) -> list[Change]:
    """Arrays of each machine, with those of the likest one where it has none in the old golden."""
    changes: list[Change] = []
    for machine in new.machines:
        like = old.machine(machine.key) or nearest(old.machines, machine)
        title = machine.key if like.key == machine.key else f"{machine.key} against {like.key}"
        before, after = old.floats(like.key, name), new.floats(machine.key, name)
        found = [*compare_arrays(name, before.arrays, after.arrays)]
        found += _stored(name, before.arrays, after.arrays)
        files = (floats_file(machine.key, name), arrays_file(machine.key, name))
        changes += [replace(change, name=f"{name} ({title})", files=files) for change in found]
    return changes


def _stored(name: str, old: Arrays, new: Arrays) -> list[Change]:
    """Arrays with the same hash that one golden has in full and the other has not."""
    changes: list[Change] = []
    for where in (where for where in old if where in new):
        kept = [arrays[where].data is not None for arrays in (old, new)]
        if kept[0] != kept[1] and old[where].same == new[where].same:
            what = "is stored in full now" if kept[1] else "is stored in full no more"
            count = new[where].elements
            changes.append(Change(name, component_of(where), where, what, None, count))
    return changes
