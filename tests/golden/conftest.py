"""A golden of two checkpoints and a vector each, cut out of the real one, in a root of its own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance import suite
from mtp_conformance.adapters import builtin
from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.golden.reading import Golden
from mtp_conformance.golden.writing import write_floats, write_manifest, write_tokens
from mtp_conformance.protocol import Runtime

ROOT = Path(__file__).parents[2]
NAMES = ("attn-float32", "gdn-bfloat16")


@pytest.fixture(scope="session")
def cut_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a golden folder of two checkpoints; copy it before changing anything."""
    whole, folder = Golden(ROOT / "golden"), tmp_path_factory.mktemp("golden") / "golden"
    shutil.copytree(whole.folder / "schema", folder / "schema")
    for name in NAMES:
        shutil.copytree(whole.checkpoint(name), folder / "checkpoints" / name)
        tokens = whole.tokens(name)
        write_tokens(folder, replace(tokens, vectors=tokens.vectors[1:]))
    machine = whole.machines[0]
    id = write_manifest(folder, NAMES, [machine])
    for name in NAMES:
        floats = whole.floats(machine.key, name)
        arrays = {n: a for n, a in floats.arrays.items() if n.startswith("prose/")}
        write_floats(folder, replace(floats, arrays=arrays), id)
    write_manifest(folder, NAMES, [machine])
    return folder


@pytest.fixture
def root(cut_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a suite root with a golden that may be changed; commands take it for theirs."""
    for room in ("conformance", "reference_models"):
        (tmp_path / room).mkdir()
    (tmp_path / "noxfile.py").touch()
    shutil.copytree(cut_out, tmp_path / "golden")
    monkeypatch.setenv(suite.ENVIRONMENT, str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))  # commands put the root on it
    return tmp_path


@pytest.fixture
def pin() -> Callable[[Path], None]:
    """Return a function that makes a manifest of a folder as it is, whatever is in it."""

    def write(folder: Path) -> None:
        write_manifest(folder, NAMES, Golden(ROOT / "golden").machines[:1])

    return write


@pytest.fixture
def checked() -> Callable[..., CheckedRuntime]:
    """Return a function that wraps a runtime, the builtin one if none is given."""

    def wrap(runtime: Runtime | None = None) -> CheckedRuntime:
        return CheckedRuntime(runtime or builtin.make_runtime())

    return wrap
