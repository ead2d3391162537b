"""Timers: a phase is charged with other work than its own, or with less than all of it."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import session
from mtp_decoder.counters import Counters
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, shot

SLOW = "timing.rewind.slow-is-charged"
TOTALS = "timing.totals.after-all-work"
EARLIER = "timing.start.earlier-work"


def _phases(patch: pytest.MonkeyPatch, *, waits_before: bool, waits_after: bool) -> None:
    """Timers that wait for work submitted before them, or inside them, or do not."""

    @contextmanager
    def phase(self: Any, name: str, *, waited: bool = False) -> Generator[None]:
        del waited
        if waits_before:
            mx.synchronize()
        start = time.perf_counter()
        try:
            yield
        finally:
            if waits_after:
                mx.synchronize()
            self.seconds[name] += time.perf_counter() - start

    patch.setattr(Counters, "phase", phase)


def _starts_at_once(patch: pytest.MonkeyPatch) -> None:
    """A timer starts while work from before it is still running."""
    _phases(patch, waits_before=False, waits_after=True)


def _submits_and_goes(patch: pytest.MonkeyPatch) -> None:
    """A rewind submits its work, and its timer stops before that is done."""
    _phases(patch, waits_before=False, waits_after=False)
    edit(
        patch,
        Session._sync,
        ("mx.eval(*arrays, arrays_of(held))", "mx.async_eval(*arrays, arrays_of(held))"),
    )


def _evaluated_after_the_timer(patch: pytest.MonkeyPatch) -> None:
    """What a rewind left is evaluated once its timer has stopped."""
    end = "        self._sync()\n    if self._settled is None:"
    edit(patch, Session.rewind, (end, end.removeprefix("    ")))


def _recurrence_left_out(patch: pytest.MonkeyPatch) -> None:
    """Only caches with keys are evaluated: recurrence and windows are left to the next pass."""
    arrays_of = session.arrays_of

    def faulty(caches: Any) -> Any:
        return arrays_of([c for c in caches if type(c).__name__ != "ArraysCache"])

    patch.setattr(session, "arrays_of", faulty)


def _fault(
    name: str, ids: tuple[str, ...], apply: Callable[[pytest.MonkeyPatch], None], *shots: Shot
) -> Fault:
    return Fault(
        id=name,
        family=Family.COUNTER,
        kind="C",
        ids=ids,
        invariant="I12",
        claim=Claim.ANY,
        shots=shots,
        apply=apply,
    )


FAULTS = (
    _fault(
        "timer-takes-earlier-work", ("C3",), _starts_at_once, shot(EARLIER, "attn", k=2, prompt=3)
    ),
    _fault(
        "rewind-submitted-and-left",
        ("C1",),
        _submits_and_goes,
        shot(TOTALS, "attn", k=2),
        shot(SLOW, "attn", k=3),
    ),
    _fault(
        "rewind-evaluated-after-its-timer",
        ("C1",),
        _evaluated_after_the_timer,
        shot(SLOW, "window", k=3),
        shot(SLOW, "qsa", "snapshot", k=3),
    ),
    _fault(
        "recurrence-left-to-the-next-pass",
        ("C1",),
        _recurrence_left_out,
        shot(SLOW, "gdn+mlx-lm", k=3),
        shot(SLOW, "flash-next", "replay", k=3),
    ),
)
