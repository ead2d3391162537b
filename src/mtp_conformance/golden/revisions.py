"""Goldens of git revisions, unpacked beside each other to be compared."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

from mtp_conformance.golden.checking import compare_checkpoints
from mtp_conformance.golden.comparing import Change, compare_arrays, compare_tokens
from mtp_conformance.golden.contents import GoldenError
from mtp_conformance.golden.explaining import nearest
from mtp_conformance.golden.files import FOLDER, MANIFEST
from mtp_conformance.golden.reading import Golden


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


def compare(old: Golden, new: Golden) -> list[Change]:
    """Everything that differs between two goldens, each refused if it is not whole."""
    changes: list[Change] = []
    for name in (*old.names, *(n for n in new.names if n not in old.names)):
        if name not in new.names or name not in old.names:
            what = "is gone" if name in old.names else "is new"
            changes.append(Change(name, "checkpoint", "all of it", what, None, 1))
            continue
        changes += compare_checkpoints(name, old.checkpoint(name), new.checkpoint(name))
        changes += compare_tokens(name, old.tokens(name), new.tokens(name))
        changes += _floats(old, new, name)
    keys = [{machine.key for machine in golden.machines} for golden in (old, new)]
    for key in sorted(keys[0] ^ keys[1]):
        what = "are gone" if key in keys[0] else "are new"
        changes.append(Change(key, "floats", "all of them", what, None, len(new.names)))
    return changes


def _floats(old: Golden, new: Golden, name: str) -> list[Change]:
    """Arrays of each machine, with those of the likest one where it has none in the old golden."""
    changes: list[Change] = []
    for machine in new.machines:
        like = old.machine(machine.key) or nearest(old.machines, machine)
        title = machine.key if like.key == machine.key else f"{machine.key} against {like.key}"
        before, after = old.floats(like.key, name), new.floats(machine.key, name)
        found = compare_arrays(name, before.arrays, after.arrays)
        changes += [replace(change, name=f"{name} ({title})") for change in found]
    return changes
