"""Where runtime compilation happens, so that worker processes never race for a file.

On the CPU backend `mx.compile` calls the system's C++ compiler and keeps the libraries in the
temporary folder. A run is eager unless it asks for compilation. If it does, the parent
compiles what the models use once, and every worker starts from a copy of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx

_WARM = "MTP_CONFORMANCE_COMPILED"


def run_eagerly() -> None:
    """Switch compilation off for this process."""
    mx.disable_compile()


def compile_in_parent(warm_up: Callable[[], None]) -> None:
    """Compile in a new folder by running `warm_up`, and leave it for workers to copy."""
    folder = _own_folder()
    warm_up()
    os.environ[_WARM] = str(folder)


def compile_in_worker() -> None:
    """Start from a copy of what the parent compiled."""
    warm = Path(os.environ[_WARM])
    shutil.copytree(warm, _own_folder(), dirs_exist_ok=True)


@contextmanager
def compilation(*, on: bool) -> Generator[None, None, None]:
    """Compilation on or off for the enclosed calls alone; if on, in a folder nobody else uses."""
    folder, was_on = os.environ.get("TMPDIR"), _WARM in os.environ
    try:
        if on:
            _own_folder()
        (mx.enable_compile if on else mx.disable_compile)()
        yield
    finally:
        (mx.enable_compile if was_on else mx.disable_compile)()
        os.environ.pop("TMPDIR", None)
        if folder is not None:
            os.environ["TMPDIR"] = folder


def can_compile() -> bool:
    """Whether this backend compiles without a C++ compiler, or there is one."""
    return mx.default_device() != mx.Device(mx.cpu) or shutil.which("g++") is not None


def _own_folder() -> Path:
    """A folder mlx will keep its libraries in; Python's own temporary files stay elsewhere."""
    tempfile.gettempdir()  # decided now, before TMPDIR changes
    folder = Path(tempfile.mkdtemp(prefix="mtp-conformance-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = str(folder)
    return folder
