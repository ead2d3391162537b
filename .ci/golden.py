"""Make goldens and snapshots again: whole, one process, tested, or not at all.

Run by `nox -s golden`. The goldens are made first, then everything is tested with them, in one
process, while syrupy writes the snapshots. If anything fails, or is interrupted, both are put back
as they were. What changed is printed at the end, to be reviewed.

Nothing can be left out: any argument but `--prune` is refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PERMISSION = "MTP_CONFORMANCE_GOLDEN"
"""In whose absence `tests/conftest.py` refuses `--snapshot-update`."""

PYTHON = sys.executable
TESTS = ("-m", "pytest", "tests", "conformance", "-n", "0", "-q", "--snapshot-update")


def main(words: list[str]) -> int:
    """Regenerate; returns 0, 1 if something failed, 2 for a wrong argument, 130 after Ctrl-C."""
    unknown = [word for word in words if word != "--prune"]
    if unknown:
        print(
            f"golden: {' '.join(unknown)}: goldens are made whole or not at all; no filter, path "
            "or option is taken but --prune, which removes stale files and snapshots",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory(prefix=".golden-kept-", dir=ROOT) as folder:
        kept = Path(folder)
        keep(kept)
        try:
            code = regenerate(prune="--prune" in words)
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            put_back(kept)
            raise
        if code:
            put_back(kept)
            print("\ngolden: nothing was changed")
            return code
        show(kept)
    return 0


def regenerate(*, prune: bool) -> int:
    """Goldens, then all tests with snapshots written; returns the first exit code but 0."""
    update = [PYTHON, "-m", "mtp_conformance", "golden", "update", *(["--prune"] if prune else [])]
    test = [PYTHON, *TESTS, *([] if prune else ["--snapshot-no-cleanup"])]
    for command in (update, test):
        print(f"golden: {' '.join(command[1:])}", flush=True)
        code = subprocess.call(command, cwd=ROOT, env={**os.environ, PERMISSION: "1"})
        if code:
            print(f"golden: that ended with {code}", file=sys.stderr)
            return 1
    return 0


def places() -> list[Path]:
    """The folders that may change: the goldens, and the snapshots of every folder of tests."""
    return [ROOT / "golden", *sorted((ROOT / "tests").rglob("__snapshots__"))]


def keep(folder: Path) -> None:
    """Copy every place to below `folder`."""
    for place in places():
        if place.is_dir():
            shutil.copytree(place, folder / place.relative_to(ROOT))


def put_back(folder: Path) -> None:
    """Make every place what was kept of it: each beside the old one first, then renamed."""
    kept = [path for path in (folder / "golden", *folder.rglob("__snapshots__")) if path.is_dir()]
    for place in {*places(), *(ROOT / path.relative_to(folder) for path in kept)}:
        old, spoiled = folder / place.relative_to(ROOT), folder / "spoiled"
        if place.is_dir():
            place.rename(spoiled)
        if old.is_dir():
            old.rename(place)
        shutil.rmtree(spoiled, ignore_errors=True)


def show(kept: Path) -> None:
    """Print what is to be reviewed: the goldens by their meaning, the snapshots as text."""
    compare = [PYTHON, "-m", "mtp_conformance", "golden", "diff", "--folder", str(kept / "golden")]
    print("\ngolden: what changed in golden/", flush=True)
    subprocess.call(compare, cwd=ROOT)
    print("\ngolden: what changed in snapshots", flush=True)
    for place in sorted({*places(), *(ROOT / p.relative_to(kept) for p in kept.rglob("__snap*"))}):
        if place.name == "__snapshots__":
            old = kept / place.relative_to(ROOT)
            subprocess.call(["diff", "-u", "-r", "-N", str(old), str(place)], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
