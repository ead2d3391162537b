"""One fault in a worker process: its cells, then one cell of every other case."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance import Cell, Oracles, Verdict
from mtp_conformance.adapters import builtin
from mtp_conformance.explaining import cells_of
from tests.faults.cases import Judgement, judge, known_cases
from tests.faults.fault import Fault, Shot
from tests.faults.registry import seeded

LONG = ("rewind.long.random-accepts", "rewind.depth.deepest")
"""Cases too slow to be tried on every fault."""
MATRIX_SECONDS = 3.5
"""Longest a fault is tried on cases that are not named as its killers."""


@dataclass(frozen=True)
class Job:
    """What a worker is to do.

    Attributes:
        fault: id of the fault; empty for the unedited decoder.
        shots: its cells, or those for the unedited decoder.
        first_kill: stop at the first kill, try no other case.
    """

    fault: str
    shots: tuple[Shot, ...] = ()
    first_kill: bool = False


def serve(connection: Connection, folder: Path) -> None:
    """Do jobs until None comes; every judgement is sent at once, then None for the job's end."""
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    known_cases()
    while (job := connection.recv()) is not None:
        for judgement in work(job, folder):
            connection.send(judgement)
        connection.send(None)


def work(job: Job, folder: Path) -> Iterator[Judgement]:
    """Judge a fault, or the unedited decoder where the job names none."""
    oracles = Oracles(builtin.make_runtime(), builtin.zoo_materials(folder))
    if not job.fault:
        yield from (judge(shot, oracles) for shot in job.shots)
        return
    fault = seeded()[job.fault]
    if fault.reloads:
        builtin.load_model.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            try:
                fault.apply(patch)
            except Exception as error:  # a fault that cannot be made is no killed fault
                why = f"cannot be seeded: {type(error).__name__}: {error}"
                yield Judgement(fault.shots[0], Verdict.UNSUPPORTED, 0.0, why)
                return
            for shot in fault.before:
                judge(shot, oracles)
            yield from _judged(fault, oracles, first_kill=job.first_kill)
    finally:
        if fault.reloads:
            builtin.load_model.cache_clear()


def _judged(fault: Fault, oracles: Oracles, *, first_kill: bool) -> Iterator[Judgement]:
    for shot in fault.shots:
        judgement = judge(shot, oracles)
        yield judgement
        if first_kill and judgement.kills:
            return
    if first_kill:
        return
    end = time.monotonic() + MATRIX_SECONDS
    for shot in _other_cases(fault):
        if time.monotonic() > end:
            return
        yield judge(shot, oracles)


def _other_cases(fault: Fault) -> Iterator[Shot]:
    """A shallow cell of every other case that runs on the model of the fault's first cell."""
    named = {shot.case for shot in fault.shots}
    first = fault.shots[0].cell
    for name, case in known_cases().items():
        if name in named or name in LONG:
            continue
        cells = [c for c in cells_of(case.registration, "default") if c is not None]
        same = [cell for cell in cells if cell.model == first.model]
        if same:
            yield Shot(name, _like(first, same))


def _like(first: Cell, cells: Sequence[Cell]) -> Cell:
    """The shallowest cell, with strategy, type and prompt of the fault's own."""
    cell = min(cells, key=lambda c: (c.k or 0, c.accepted or 0))
    return replace(
        cell, strategy=first.strategy, dtype=first.dtype, prompt_length=first.prompt_length
    )
