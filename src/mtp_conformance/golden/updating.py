"""Making all goldens again, beside the old ones, and putting them in their place at the end.

Whatever goes wrong before that leaves the old folder as it was. Files that belong to nothing any
more are reported and stay until they are pruned.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.golden.checking import compare_checkpoints
from mtp_conformance.golden.comparing import compare_tokens, in_words
from mtp_conformance.golden.contents import (
    DTYPES,
    Array,
    Floats,
    GoldenError,
    Machine,
    Tokens,
)
from mtp_conformance.golden.files import BY_HAND, FOLDER, MANIFEST, every_path
from mtp_conformance.golden.making import make_tokens, replay
from mtp_conformance.golden.reading import Golden, oracle_files
from mtp_conformance.golden.writing import write_floats, write_manifest, write_tokens
from mtp_conformance.oracles import Materials

_NEW, _OLD = ".golden-new", ".golden-old"


@dataclass(frozen=True)
class Updated:
    """What an update did.

    Attributes:
        kept: float goldens of other machines that still hold.
        stale: files of the old folder that belong to the new golden no more.
        pruned: whether they were removed.
    """

    kept: tuple[str, ...]
    stale: tuple[str, ...]
    pruned: bool


def update(
    root: Path,
    models: tuple[str, ...],
    runtime: CheckedRuntime,
    materials: Materials,
    here: Machine,
    *,
    prune: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Updated:
    """Make every golden again; only a whole and readable one takes the old one's place.

    Args:
        root: the suite root.
        models: names of the models.
        runtime: the decoder.
        materials: checkpoints and text.
        here: the machine the float goldens are of.
        prune: remove stale files.
        progress: told each checkpoint's name.

    Raises:
        GoldenError: what was made cannot be read back, or tokens cannot be made.
        AssertionError: a round left something else than a fresh pass does.
    """
    recover(root)
    staged = root / _NEW
    shutil.rmtree(staged, ignore_errors=True)
    try:
        _stage(root / FOLDER, staged)
        done = _fill(root / FOLDER, staged, models, runtime, materials, here, prune, progress)
        Golden(staged).verify()
        _swap(root, staged)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return done


def recover(root: Path) -> None:
    """Put the old golden back where an update was killed between its two renames."""
    old, folder = root / _OLD, root / FOLDER
    if old.is_dir() and not folder.exists():
        old.rename(folder)


def _stage(folder: Path, staged: Path) -> None:
    """Copy what is not made here: the page, the schemas, and what the oracle computed."""
    staged.mkdir()
    _copy(folder, staged, tuple(f for f in (*BY_HAND, *oracle_files(folder)) if f != MANIFEST))


def _fill(
    folder: Path,
    staged: Path,
    models: tuple[str, ...],
    runtime: CheckedRuntime,
    materials: Materials,
    here: Machine,
    prune: bool,
    progress: Callable[[str], None],
) -> Updated:
    made: list[tuple[Tokens, dict[str, Array]]] = []
    for model in models:
        for dtype in DTYPES:
            progress(f"{model}-{dtype}")
            made.append(_Making(folder, staged, runtime, materials, here).make(model, dtype))
    names = [tokens.name for tokens, _ in made]
    manifest = write_manifest(staged, names, [here])
    for tokens, arrays in made:
        write_floats(staged, Floats(tokens.model, tokens.dtype, here, arrays), manifest)
    kept = _carry(folder, staged, manifest, here)
    stale = _stale(folder, staged)
    if not prune:
        _copy(folder, staged, stale)
    write_manifest(staged, names, [here, *kept], without=stale)
    return Updated(tuple(machine.key for machine in kept), stale, prune)


@dataclass(frozen=True)
class _Making:
    """Where one checkpoint's golden comes from and goes to."""

    folder: Path
    staged: Path
    runtime: CheckedRuntime
    materials: Materials
    here: Machine

    def make(self, model: str, dtype: str) -> tuple[Tokens, dict[str, Array]]:
        """Store checkpoint and tokens; returns the tokens and the arrays."""
        checkpoint = self._store_checkpoint(model, dtype)
        # Off the CPU a block of rows may round otherwise than its rows: nothing to prove there,
        # and tokens are those that the CPU has pinned.
        on_cpu = self.here.backend.startswith("cpu-")
        if on_cpu:
            tokens = make_tokens(self.runtime, checkpoint, model, dtype, self.materials)
        else:
            tokens = Golden(self.folder).tokens(f"{model}-{dtype}")
        again, arrays = replay(self.runtime, checkpoint, tokens, prove=on_cpu)
        changes = list(compare_tokens(tokens.name, tokens, again))
        if changes:
            raise GoldenError(f"other tokens than are pinned: {in_words(changes)[0]}")
        write_tokens(self.staged, tokens)
        return tokens, arrays

    def _store_checkpoint(self, model: str, dtype: str) -> Path:
        drawn = self.materials.checkpoint(model, dtype)
        old, new = (at / "checkpoints" / f"{model}-{dtype}" for at in (self.folder, self.staged))
        same = (old / "model.safetensors").is_file() and not compare_checkpoints("", old, drawn)
        # The order of tensors in a file is the C++ library's; equal tensors keep their bytes.
        return Path(shutil.copytree(old if same else drawn, new))


def _carry(folder: Path, staged: Path, manifest: str, here: Machine) -> list[Machine]:
    """Take over float goldens of other machines that are of the same tokens and checkpoints."""
    try:
        old = Golden(folder)
    except GoldenError:
        return []
    others = [m for m in old.machines if m.key != here.key] if old.id == manifest else []
    for machine in others:
        shutil.copytree(folder / "floats" / machine.key, staged / "floats" / machine.key)
    return others


def _stale(folder: Path, staged: Path) -> tuple[str, ...]:
    return tuple(sorted({*every_path(folder)} - {*every_path(staged), MANIFEST}))


def _copy(folder: Path, staged: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            (staged / name).mkdir(exist_ok=True)
        elif (folder / name).exists() or (folder / name).is_symlink():
            shutil.copy(folder / name, staged / name, follow_symlinks=False)


def _swap(root: Path, staged: Path) -> None:
    """Two renames that Ctrl-C does not come between; `recover` mends a kill."""
    old, folder = root / _OLD, root / FOLDER
    shutil.rmtree(old, ignore_errors=True)
    with _uninterrupted():
        folder.rename(old)
        staged.rename(folder)
    shutil.rmtree(old)


@contextlib.contextmanager
def _uninterrupted() -> Generator[None]:
    """Put Ctrl-C off until the end; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt
