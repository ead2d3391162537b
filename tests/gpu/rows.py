"""Raw rows of a run: one JSON object a line, the first says where and with what it was made."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mlx.core as mx

Row = dict[str, Any]
SCHEMA = 1


def header(argv: list[str]) -> Row:
    """Device, driver and versions."""
    info = mx.device_info()
    return {
        "part": "header",
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "backend": backend(),
        "device": str(info.get("device_name", platform.processor() or "unknown")),
        "driver": _driver(),
        "os": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mlx": str(vars(mx)["__version__"]),
        "mlx-lm": _version("mlx-lm"),
        "argv": argv,
    }


def backend() -> str:
    """`cpu`, `metal` or `cuda`: where mlx's default device computes."""
    if mx.default_device() == mx.Device(mx.cpu):
        return "cpu"
    return "cuda" if mx.cuda.is_available() else "metal"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().splitlines()[0]


class Rows:
    """A file that grows by whole rows, so that an interrupted run loses none it has made."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("w")
        self.failures = 0

    def add(self, row: Row) -> None:
        """Append a row; one that is `ok: false` is counted."""
        self.failures += row.get("ok") is False
        print(json.dumps(row), file=self._file, flush=True)

    def close(self) -> None:
        """End the file."""
        self._file.close()


def read(file: Path) -> Iterator[Row]:
    """The rows of a file.

    Raises:
        ValueError: it does not begin with a header of this schema.
    """
    lines = file.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    if not rows or rows[0].get("part") != "header" or rows[0].get("schema") != SCHEMA:
        raise ValueError(f"{file}: the first row is no header of schema {SCHEMA}")
    yield from rows
