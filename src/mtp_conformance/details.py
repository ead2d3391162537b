"""What a failure carries beyond its message: where, how near, how small it can be made."""

from __future__ import annotations

import time
from dataclasses import replace

from mtp_conformance.case import Cell
from mtp_conformance.diagnosis import beyond, diagnose
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.minimise import minimise
from mtp_conformance.near_tie import StreamDiffers
from mtp_conformance.oracles import Oracles
from mtp_conformance.report import Failure, Minimal, Rung
from mtp_conformance.verdict import NearTie

SECONDS = 60.0
"""Longest a process spends on minimising, all failures together."""
_found: dict[tuple[str | None, ...], Minimal | None] = {}
_told: dict[tuple[str | None, ...], str | None] = {}
_spent = [0.0]


def detailed(
    failure: Failure, error: BaseException | None, oracles: Oracles | None, cell: Cell | None
) -> Failure:
    """Add all that is known of an error to a failure's record."""
    if isinstance(error, StateDiffers):
        failure = _located(failure, error)
    if isinstance(error, StreamDiffers | NearTie):
        ladder = tuple(Rung(k, at) for k, at in error.ladder)
        failure = replace(failure, ladder=ladder, margin=error.margin)
    if isinstance(error, NearTie) and error.index is not None:
        failure = replace(failure, index=(error.index,), ulp=error.ulps)
    if isinstance(error, RuntimeFailure):
        return replace(failure, stderr=error.stderr or None)
    if not isinstance(error, AssertionError) or oracles is None or cell is None:
        return failure
    minimal = _minimal(oracles, cell)
    told = _diagnosis(oracles, cell, minimal, error)
    message = failure.message if told is None else f"{failure.message}; {told}"
    return replace(failure, message=message, minimal=minimal)


def _diagnosis(
    oracles: Oracles, cell: Cell, minimal: Minimal | None, error: AssertionError
) -> str | None:
    """What the wrong state is, sought once a model, data type and strategy."""
    key = (cell.model, cell.dtype, cell.strategy)
    if minimal is not None and key not in _told:
        _told[key] = diagnose(oracles, cell, minimal)
    if _told.get(key) is not None or not isinstance(error, StateDiffers):
        return _told.get(key)
    return beyond(error)


def _minimal(oracles: Oracles, cell: Cell) -> Minimal | None:
    """The smallest failing round of the cell's model, data type and strategy, sought once."""
    key = (cell.model, cell.dtype, cell.strategy)
    if key not in _found and _spent[0] < SECONDS:
        start = time.monotonic()
        _found[key] = minimise(oracles, cell)
        _spent[0] += time.monotonic() - start
    return _found.get(key)


def _located(failure: Failure, error: StateDiffers) -> Failure:
    failure = replace(failure, layer=error.layer, component=error.component, round=error.round)
    difference = error.difference
    if difference is None:
        return failure
    return replace(
        failure,
        index=difference.index,
        actual_bits=difference.actual_bits,
        expected_bits=difference.expected_bits,
        ulp=difference.ulp,
    )
