"""What all tests of ourselves share: pytest's own fixture for testing plugins, and a guard."""

import os

import pytest

pytest_plugins = ["pytester"]

PERMISSION = "MTP_CONFORMANCE_GOLDEN"
"""Set by `nox -s golden` alone."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to write snapshots from anything but the whole, in one process."""
    option = config.option
    if not (option.update_snapshots or option.update_new_snapshots_only):
        return
    if not os.environ.get(PERMISSION):
        raise pytest.UsageError(
            "snapshots are written by `python3 noxfile.py -s golden` alone, whole and tested"
        )
    chosen = [
        name
        for name in ("keyword", "markexpr", "lf", "failedfirst", "deselect")
        if getattr(option, name, None)
    ]
    if chosen or getattr(option, "numprocesses", None):
        raise pytest.UsageError(
            "snapshots are written whole and by one process: no -k, -m, --lf, --ff, --deselect, -n"
        )
