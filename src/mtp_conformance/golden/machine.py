"""What float values are kept by: the backend, mlx's version, and what else may matter."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from mtp_conformance.golden.contents import Machine

UNKNOWN = "unknown"
"""Stands for a version of mlx that another runtime does not tell, or that it does not run on. No
golden is kept by it, so its floats are not judged."""

_SYSTEMS = {"Darwin": "macos"}


def this_machine(mlx_version: str = "") -> Machine:
    """The machine at hand, on mlx's default device.

    Args:
        mlx_version: of another runtime, `UNKNOWN` if it tells none; this process's if empty.
    """
    version = mlx_version or cast("str", vars(cast("Any", mx))["__version__"])
    system = _SYSTEMS.get(platform.system(), platform.system().lower())
    backend = f"{_device()}-{system}-{platform.machine()}"
    made_on = {"C library": " ".join(filter(None, platform.libc_ver())), "processor": _processor()}
    return Machine(backend, version, {name: value for name, value in made_on.items() if value})


def _device() -> str:
    if mx.default_device() == mx.Device(mx.cpu):
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def _processor() -> str:
    """Its name, since a C library chooses its kernels by it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
