"""What a failure carries beyond its message: where, how near, how small it can be made."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from mtp_conformance.case import Cell
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.minimise import minimise
from mtp_conformance.near_tie import StreamDiffers
from mtp_conformance.oracles import Oracles
from mtp_conformance.report import Failure, Rung
from mtp_conformance.verdict import NearTie

_MINIMISED = 3
"""Failures a process minimises; the rest would only say the same more slowly."""
_counter = count()


def detailed(
    failure: Failure, error: BaseException | None, oracles: Oracles | None, cell: Cell | None
) -> Failure:
    """Add all that is known of an error to a failure's record."""
    if isinstance(error, StateDiffers):
        failure = _located(failure, error)
    if isinstance(error, StreamDiffers | NearTie):
        ladder = tuple(Rung(k, at) for k, at in error.ladder)
        failure = replace(failure, ladder=ladder, margin=error.margin)
    if isinstance(error, RuntimeFailure):
        return replace(failure, stderr=error.stderr or None)
    if not isinstance(error, AssertionError) or oracles is None or cell is None:
        return failure
    if next(_counter) >= _MINIMISED:
        return failure
    return replace(failure, minimal=minimise(oracles, cell))


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
