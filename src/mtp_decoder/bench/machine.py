"""The computer and the versions a benchmark ran on, in words that name no one's machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mlx.core as mx

PACKAGES = ("mlx", "mlx-lm", "numpy")


def machine(device: str | None) -> dict[str, Any]:
    """Processor, cores, memory, system and versions; no host's or user's name.

    Args:
        device: what the plan asks for; None for MLX's default.
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gib": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "device": device or mx.default_device().type.name,
        "versions": {name: _version(name) for name in PACKAGES},
    }


def load() -> float:
    """Running processes, mean of the last minute; 0 where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return 0.0


def _processor() -> str:
    """The processor's model as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return 0.0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
