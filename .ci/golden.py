"""Make goldens and snapshots again: whole, one process, tested, or not at all.

Run by `nox -s golden`. The goldens are made first, then everything is tested with them, in one
process, while syrupy writes the snapshots. If anything fails, or is interrupted, both are put back
as they were; after a kill, the next run does so first. What changed is printed at the end, to be
reviewed.

Nothing can be left out: any argument but `--prune` is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PERMISSION = "MTP_CONFORMANCE_GOLDEN"
"""In whose absence `tests/conftest.py` refuses `--snapshot-update`."""

KEPT = ".golden-kept-"
"""Begins the name of the folder with what was there before."""

PLACES = "places.json"
"""In that folder: the process, and the places that were kept. Without it, nothing was changed."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

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
    with stopped_once():
        try:
            recover()
        except RuntimeError as error:
            print(f"golden: {error}", file=sys.stderr)
            return 2
        kept = keep()
        code = 1
        try:
            code = regenerate(prune="--prune" in words)
        except KeyboardInterrupt:
            code = 130
        finally:
            if code:
                put_back(kept)
        if code:
            print("\ngolden: nothing was changed")
        else:
            (kept / PLACES).unlink()  # from here on there is nothing to put back
            show(kept)
        shutil.rmtree(kept)
    return code


@contextlib.contextmanager
def stopped_once() -> Generator[None]:
    """Ctrl-C, SIGTERM and SIGHUP all raise KeyboardInterrupt, once; what follows is ignored.

    So a second one does not come between what is put back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        del number, frame
        ignore()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Take no signal any more."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def regenerate(*, prune: bool) -> int:
    """Goldens, then all tests with snapshots written; returns the first exit code but 0."""
    update = [PYTHON, "-m", "mtp_conformance", "golden", "update", *(["--prune"] if prune else [])]
    test = [PYTHON, *TESTS, *([] if prune else ["--snapshot-no-cleanup"])]
    for command in (update, test):
        print(f"golden: {' '.join(command[1:])}", flush=True)
        code = subprocess.call(command, cwd=ROOT, env=environment())
        if code:
            print(f"golden: that ended with {code}", file=sys.stderr)
            return 1
    return 0


def environment() -> dict[str, str]:
    """The environment without what pytest takes options and plugins from, and the permission."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**plain, PERMISSION: "1"}


def places() -> list[Path]:
    """The folders that may change: the goldens, and the snapshots of every folder of tests."""
    return [ROOT / "golden", *sorted((ROOT / "tests").rglob("__snapshots__"))]


def keep() -> Path:
    """Copy every place to a folder beside them; its list is written last and makes it whole."""
    folder = Path(tempfile.mkdtemp(prefix=KEPT, dir=ROOT))
    names = [place.relative_to(ROOT).as_posix() for place in places() if place.is_dir()]
    for name in names:
        shutil.copytree(ROOT / name, folder / name)
    partial = folder / f"{PLACES}.partial"
    partial.write_text(json.dumps({"process": os.getpid(), "places": names}))
    partial.rename(folder / PLACES)
    return folder


def put_back(folder: Path) -> None:
    """Make every place what was kept of it, by renames alone; takes no signal any more.

    It may be cut off anywhere and run again: what is not in the folder any more is in its place.
    """
    ignore()
    names = json.loads((folder / PLACES).read_text())["places"]
    spoiled = Path(tempfile.mkdtemp(prefix="spoiled-", dir=folder))
    for number, name in enumerate(names):
        if (folder / name).is_dir():
            if (ROOT / name).is_dir():
                (ROOT / name).rename(spoiled / str(number))
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).rename(ROOT / name)
    for number, place in enumerate(places(), start=len(names)):
        if place.is_dir() and place.relative_to(ROOT).as_posix() not in names:
            place.rename(spoiled / str(number))


def recover() -> None:
    """Put back what an earlier run, killed, has left changed.

    Raises:
        RuntimeError: such a run still goes on.
    """
    for folder in sorted(ROOT.glob(f"{KEPT}*")):
        try:
            process = json.loads((folder / PLACES).read_text())["process"]
        except (OSError, ValueError):  # it was killed before it changed anything, or after the end
            shutil.rmtree(folder)
            continue
        if process != os.getpid() and runs(process):
            raise RuntimeError(
                f"process {process} is making goldens; if it is another program by now, "
                f"delete {folder / PLACES} to keep what is there"
            )
        print(f"golden: an earlier run was killed; put back what it had kept in {folder.name}")
        put_back(folder)
        shutil.rmtree(folder)


def runs(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
