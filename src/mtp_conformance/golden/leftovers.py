"""Files whose bytes differ although no value that is compared does.

A comparison by meaning sees what it knows of. This is the other half: whatever differs in bytes
and has not been named by then is named as a file, so that no change of a golden is silent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mtp_conformance.golden.comparing import Change
from mtp_conformance.golden.files import MANIFEST, every_path


def every_file(folder: Path) -> dict[str, bytes]:
    """Content of everything below a folder, by its path; of a link, where it leads."""
    found: dict[str, bytes] = {}
    for name in every_path(folder):
        path = folder / name
        if path.is_symlink():
            found[name] = b"link to " + os.fsencode(path.readlink())
        else:
            found[name] = b"" if path.is_dir() else path.read_bytes()
    return found


def leftovers(
    old: Path, new: Path, ids: tuple[str, str], named: Iterable[Change]
) -> Iterator[Change]:
    """Files that differ in bytes and that no change stands for.

    Args:
        old: a golden folder.
        new: another one.
        ids: of their manifests; a file that differs by these alone differs because others do.
        named: changes that have been found.
    """
    before, after = every_file(old), every_file(new)
    told = {file for change in named for file in change.files}
    was, is_now = (id.encode() for id in ids)
    differing = [
        file
        for file in sorted({*before, *after})
        if before.get(file) != after.get(file)
        and not (file in before and before[file].replace(was, is_now) == after.get(file))
    ]
    # The manifest has the hash of every other file: it differs where one of them does.
    owed = [f for f in differing if f.startswith(("checkpoints/", "tokens/", "floats/"))]
    for file in differing:
        if not _is_told(file, told) and not (file == MANIFEST and owed):
            what = "is new" if file not in before else "is gone" if file not in after else "differs"
            size = len(after.get(file, before.get(file, b"")))
            yield Change(file, "bytes", "the file", what, None, size, files=(file,))


def _is_told(file: str, told: set[str]) -> bool:
    return any(file == name or (name.endswith("/") and file.startswith(name)) for name in told)
