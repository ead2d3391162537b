"""Run nox on a machine that may have nothing but Python.

``noxfile.py`` calls ``run_nox`` when it is run as a script. If this Python has a recent nox, it is
used. Otherwise nox goes into an environment of its own, ``.nox/bootstrap``, made with the standard
library: a Python that refuses global installs (PEP 668) is no obstacle. Later runs find it there.

Kept to the syntax of Python 3.6, so that an old Python gets an explanation, not a SyntaxError.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

OLDEST_PYTHON = (3, 11)  # mlx-lm and syrupy need it
OLDEST_NOX = (2025, 2, 9)  # same bound as `dev` in pyproject.toml
NOX = "nox>=2025.2.9,<2028"  # a nox from far ahead may have dropped what the noxfile uses


def run_nox(noxfile: Path) -> NoReturn:
    """Become nox running ``noxfile`` with this process's arguments.

    Exits with a message when this Python is too old, cannot make environments, or pip fails.
    """
    _refuse_old_python(noxfile)
    try:
        python = sys.executable if _has_nox() else _bootstrap(noxfile.parent / ".nox" / "bootstrap")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.stdout.flush()
    os.execv(python, [python, "-m", "nox", "--noxfile", str(noxfile), *sys.argv[1:]])


def _refuse_old_python(noxfile: Path) -> None:
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return
    newer = [f"python3.{minor}" for minor in range(20, OLDEST_PYTHON[1] - 1, -1)]
    found = [name for name in newer if _starts(name)]
    arguments = " ".join([noxfile.name, *sys.argv[1:]])
    this, oldest = ("{}.{}".format(*version) for version in (sys.version_info, OLDEST_PYTHON))
    _give_up(
        f"this is Python {this}; the suite needs {oldest} or later (mlx-lm and syrupy do).",
        f"run `{found[0]} {arguments}`"
        if found
        else "install one (for example `apt install python3.12 python3.12-venv`, "
        "`brew install python@3.12`, `uv python install 3.12`), then run "
        f"`python3.12 {arguments}`.",
    )


def _starts(name: str) -> bool:
    """Tell whether ``name`` really starts a Python; a version manager's stub may not."""
    if shutil.which(name) is None:
        return False
    none = subprocess.DEVNULL
    return subprocess.call([name, "-c", ""], stdin=none, stdout=none, stderr=none) == 0


def _has_nox() -> bool:
    if importlib.util.find_spec("nox") is None:
        return False
    from importlib import metadata

    try:
        version = metadata.version("nox")
        return tuple(int(part) for part in version.split(".")[:3]) >= OLDEST_NOX
    except (metadata.PackageNotFoundError, ValueError):
        return False


def _bootstrap(environment: Path) -> str:
    """Return the Python of an environment that has nox, making it if it is missing or half made."""
    python = environment / "bin" / "python"
    # Written last: an interrupted run, another Python or another bound leaves it missing or other.
    stamp = environment / "complete.txt"
    wanted = f"{NOX}\n{sys.version}\n{sys.base_prefix}\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    print("nox is not installed; putting it into .nox/bootstrap (only this once)", flush=True)
    _make_environment(environment)
    _pip_install_nox(python)
    stamp.write_text(wanted)
    return str(python)


def _make_environment(environment: Path) -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        _give_up(
            "this Python cannot make environments: its `venv` or `ensurepip` is missing.",
            "on Debian and Ubuntu run `apt install python3-venv`; elsewhere install a Python that "
            "has both.",
        )
    if environment.exists():
        shutil.rmtree(str(environment))
    if subprocess.call([sys.executable, "-m", "venv", str(environment)]) != 0:
        _give_up(
            f"`{sys.executable} -m venv` failed; its message is above.",
            "check that this folder is writable and the disk is not full.",
        )


def _pip_install_nox(python: Path) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.call([*pip, NOX]) != 0:
        _give_up(
            f"pip could not install {NOX}; its message is above.",
            "it needs a package index: behind a proxy set HTTPS_PROXY, for a mirror PIP_INDEX_URL; "
            "or install nox some other way, and this script will use it.",
        )


def _give_up(what: str, remedy: str) -> NoReturn:
    sys.exit(f"noxfile.py: {what}\nWhat to do: {remedy}")
