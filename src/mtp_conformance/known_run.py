"""Known failures in a run: which apply, which have no cell, and what they make of a verdict.

Every process reads the lists. Workers say which entries had a cell among what they collected;
whether an entry is stale is decided in the end, and only if the whole suite was collected. A shard
collects all of it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import mlx.core as mx
import pytest

from mtp_conformance.case import Registration, Scalar
from mtp_conformance.known import (
    Judged,
    KnownFailure,
    judge,
    known_files,
    on_device,
    read_known,
)
from mtp_conformance.toml_table import TomlError
from mtp_conformance.verdict import Verdict

_OUTPUT = "mtp_conformance_known"
STALE = 11
"""Exit code of a run in which an entry was about no cell; pytest's own end at 5."""
_FILTERS = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "case")


@dataclass(frozen=True)
class Place:
    """A collected cell: the case's registration and the cell's parameters."""

    registration: Registration
    params: Mapping[str, Scalar]


class _WorkerNode(Protocol):
    """What is used of xdist's handle on a worker."""

    workeroutput: Mapping[str, object]


class KnownRun:
    """The lists of known failures of one run; a pytest plugin.

    Args:
        config: of the run.
        place: gives the case and parameters of a test item, None for a plain test.

    Raises:
        pytest.UsageError: a list that cannot be read.
    """

    def __init__(self, config: pytest.Config, place: Callable[[pytest.Item], Place | None]) -> None:
        self._config = config
        self._place = place
        self._entries = _entries(config)
        self._with_cell: set[int] = set()
        self._whole = _covers_suite(config)

    def judge(self, item: pytest.Item, verdict: Verdict, message: str) -> Judged:
        """What the lists make of a cell's verdict."""
        place = self._place(item)
        if place is None or not self._entries:
            return Judged(verdict)
        id, params = place.registration.case.id, place.params
        listed = [entry for entry in self._entries if entry.covers(id, params)]
        return judge(listed, verdict, message, datetime.date.today())

    @property
    def whole(self) -> bool:
        """Whether this is a run of the whole suite, without filters."""
        return self._whole

    @property
    def expired(self) -> tuple[KnownFailure, ...]:
        """Entries about cells of this run whose last day is over, whatever the cells came to."""
        numbered = enumerate(self._entries)
        today = datetime.date.today()
        return tuple(e for n, e in numbered if n in self._with_cell and e.expires < today)

    @property
    def stale(self) -> tuple[KnownFailure, ...]:
        """Entries that no cell of the suite is about; none where the run was not the suite."""
        if not self._whole:
            return ()
        numbered = enumerate(self._entries)
        return tuple(entry for number, entry in numbered if number not in self._with_cell)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Note which entries have a cell, before options deselect some."""
        if not self._entries:
            return
        places = [place for place in map(self._place, items) if place is not None]
        for number, entry in enumerate(self._entries):
            if any(entry.covers(p.registration.case.id, p.params) for p in places) or any(
                _in_full_profile(entry, place.registration) for place in places
            ):
                self._with_cell.add(number)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: _WorkerNode) -> None:
        """Take over what a worker collected; one that crashed has nothing to give."""
        output = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if output is None:
            self._whole = False
            return
        self._with_cell |= set(cast("list[int]", output["with_cell"]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker: send what was collected. Elsewhere: fail a run with stale entries."""
        output = cast("dict[str, object] | None", getattr(self._config, "workeroutput", None))
        if output is not None:
            output[_OUTPUT] = {"with_cell": sorted(self._with_cell)}
        elif session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._whole = False
        elif self.stale or (self._whole and self.expired):
            session.exitstatus = STALE

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the stale entries."""
        if self._config.getoption("collectonly"):
            return
        stale, expired = self.stale, self.expired if self._whole else ()
        if stale:
            terminalreporter.section("stale known failures")
        for entry in stale:
            terminalreporter.line(f"no cell of the suite is {entry.name}; remove the entry")
        if expired:
            terminalreporter.section("expired known failures")
        for entry in expired:
            terminalreporter.line(f"expired on {entry.expires}, owner {entry.owner}: {entry.name}")


def _entries(config: pytest.Config) -> tuple[KnownFailure, ...]:
    given = cast("list[str] | None", config.getoption("known"))
    command = cast("str | None", config.getoption("runtime_cmd"))
    runtime = command or cast("str", config.getoption("runtime"))
    default = known_files(config.rootpath, runtime)
    files = default if given is None else tuple(Path(name) for name in given)
    try:
        return on_device(read_known(files), _device())
    except TomlError as error:
        raise pytest.UsageError(f"known failures: {error}") from error


def _device() -> str:
    """As in the report's header."""
    return f"{mx.default_device().type.name}: {mx.device_info().get('device_name', 'unknown')}"


def _covers_suite(config: pytest.Config) -> bool:
    """Whether all cases were asked for: no filter, and a folder that has them all."""
    if any(config.getoption(name, None) for name in _FILTERS):
        return False
    cases = config.rootpath / "conformance"
    wanted = cases if cases.is_dir() else config.rootpath
    asked = [(config.invocation_params.dir / argument).resolve() for argument in config.args]
    return any(wanted.is_relative_to(folder) for folder in asked)


def _in_full_profile(entry: KnownFailure, registration: Registration) -> bool:
    """Whether the cell an entry is about is one that this run's profile leaves out."""
    if registration.case.id != entry.case or registration.cells is None:
        return False
    return any(entry.covers(entry.case, cell.params) for cell in registration.cells("full"))
