"""Every seeded fault, and every public fault that is not one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tomllib

import tests.faults
from mtp_conformance.catalogue import FAULTS_FILE, read_catalogue
from tests.faults.cases import ROOT
from tests.faults.fault import Fault

ABSENT_FILE = Path(__file__).parent / "absent.toml"


@cache
def seeded() -> Mapping[str, Fault]:
    """All `FAULTS` of the modules of this package, by id.

    Raises:
        ValueError: two have one id.
    """
    found: dict[str, Fault] = {}
    for module in pkgutil.iter_modules(tests.faults.__path__):
        if module.name.startswith(("test_", "__")):
            continue
        faults: tuple[Fault, ...] = getattr(
            importlib.import_module(f"tests.faults.{module.name}"), "FAULTS", ()
        )
        for fault in faults:
            if fault.id in found:
                raise ValueError(f"two seeded faults are called {fault.id}")
            found[fault.id] = fault
    return found


def not_seeded(file: Path = ABSENT_FILE) -> Mapping[str, str]:
    """Reason by public fault.

    Raises:
        ValueError: an entry without exactly one of `reason` and `later`, or a fault named twice.
    """
    entries: list[dict[str, Any]] = tomllib.loads(file.read_text())["absent"]
    found: dict[str, str] = {}
    for entry in entries:
        if len({"reason", "later"} & set(entry)) != 1:
            raise ValueError(f"{file}: {entry['ids']} need a `reason` or a `later`")
        reason = entry.get("reason") or f"later, with {entry['later']}"
        for id in entry["ids"]:
            if id in found:
                raise ValueError(f"{file}: {id} is there twice")
            found[id] = reason
    return found


def public_ids() -> tuple[str, ...]:
    """Ids of the public faults, in the catalogue's order."""
    return tuple(read_catalogue(ROOT / FAULTS_FILE).faults)


def smoke() -> Mapping[str, Fault]:
    """One fault a kind: the first of each that is killed by a cheap case."""
    found: dict[str, Fault] = {}
    for fault in seeded().values():
        found.setdefault(fault.kind, fault)
    return {fault.id: fault for fault in found.values()}
