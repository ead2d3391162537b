"""Runtime compilation happens once, and no two processes share a file of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance import compiling


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave environment and compilation as they were."""
    environment = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environment)
    mx.disable_compile()


def _compile() -> None:
    """Stand in for a compiler: leave a library in the folder mlx would use."""
    (Path(os.environ["TMPDIR"]) / "library.so").write_text("compiled")


def test_worker_starts_from_a_copy() -> None:
    """A worker's folder has what the parent compiled and is not the parent's."""
    compiling.compile_in_parent(_compile)
    parent = Path(os.environ["TMPDIR"])
    compiling.compile_in_worker()
    worker = Path(os.environ["TMPDIR"])
    assert worker != parent
    assert (worker / "library.so").read_text() == "compiled"


def test_two_workers_have_two_folders() -> None:
    """Two workers write into two folders."""
    compiling.compile_in_parent(_compile)
    folders: list[str] = []
    for _ in range(2):
        compiling.compile_in_worker()
        folders.append(os.environ["TMPDIR"])
    assert len(set(folders)) == 2


def test_enclosed_compilation_leaves_no_trace() -> None:
    """After an enclosed compilation the temporary folder is what it was."""
    before = os.environ.get("TMPDIR")
    with compiling.compilation(on=True):
        inside = os.environ["TMPDIR"]
    assert (os.environ.get("TMPDIR"), inside) != (inside, before)
    assert os.environ.get("TMPDIR") == before
