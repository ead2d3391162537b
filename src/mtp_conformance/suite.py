"""Where the suite lies, and the cases in it.

The suite root is the folder that holds `conformance/` and `reference_models/`: a checkout, or the
copy inside the installed package. The harness never imports the cases by name: it loads what it
finds under the root.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from mtp_conformance.case import Registration, registration_of

ENVIRONMENT = "MTP_CONFORMANCE_ROOT"
"""The environment variable that says where the suite root is."""

_ROOMS = ("conformance", "reference_models")
_PACKAGE = Path(__file__).resolve().parent


class SuiteError(Exception):
    """There is no suite, or not all of it can be imported; the message says what to do."""


def suite_root() -> Path:
    """The suite root: the environment's, else the checkout around here, else the installed copy.

    Raises:
        SuiteError: there is none.
    """
    given = os.environ.get(ENVIRONMENT)
    if given:
        if _is_root(Path(given)):
            return Path(given).resolve()
        raise SuiteError(f"{ENVIRONMENT}={given}: no {_names()} in it")
    here = Path.cwd()
    places = (here, *here.parents, *_PACKAGE.parents, _PACKAGE / "_suite")
    for place in places:
        if _is_root(place):
            return place
    raise SuiteError(
        f"no suite: neither {here} nor a folder above it nor the installed package has {_names()}; "
        f"run from a checkout or set {ENVIRONMENT}"
    )


def load_cases(root: Path) -> tuple[Registration, ...]:
    """Import every `conformance/**/test_*.py` under the root; its cases, by id.

    The root stays on the import path, as it does in a run.

    Raises:
        SuiteError: a file that cannot be imported, or another suite of that name that is already.
    """
    root = root.resolve()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    found: dict[str, Registration] = {}
    for file in sorted((root / "conformance").rglob("test_*.py")):
        for registration in _declared(_load(root, file)):
            found[registration.case.id] = registration
    return tuple(found[id] for id in sorted(found))


def case_file(registration: Registration) -> Path:
    """The file that declares a case."""
    return Path(registration.origin[0])


def _is_root(place: Path) -> bool:
    return all((place / room).is_dir() for room in _ROOMS)


def _names() -> str:
    return " and ".join(f"{room}/" for room in _ROOMS)


def _load(root: Path, file: Path) -> ModuleType:
    name = ".".join(file.relative_to(root).with_suffix("").parts)
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever a case file raises on import
        raise SuiteError(f"{file}: {type(error).__name__}: {error}") from error
    loaded = Path(str(module.__file__)).resolve()
    if loaded != file:
        raise SuiteError(f"{name} is imported from {loaded} already, not from {file}")
    return module


def _declared(module: ModuleType) -> Iterator[Registration]:
    for value in vars(module).values():
        registration = registration_of(value)
        if registration is not None:
            yield registration
