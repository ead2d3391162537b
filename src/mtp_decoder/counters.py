"""What a session did: counts and seconds by phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import mlx.core as mx

PHASES = ("prefill", "draft", "verify", "accept", "rewind")


def _now() -> float:
    return time.perf_counter()


@dataclass
class Counters:
    """Running totals of one session.

    `drafted_by_depth[j]` rounds drafted at least j+1 tokens, `accepted_by_depth[j]` of them
    accepted that many; a draft counts as accepted once it is emitted. A round that had nothing
    to rewind counts no rewind. Seconds are wall time; every phase evaluates what it encloses
    before its clock stops, and the phases of a call come to the time it takes. Only a step that
    leaves the next one under way (`Session.step`) does not wait for that one: what of it is not
    over when it is asked for is charged then, to `verify`, or to `rewind` if it is undone. `clock`
    gives seconds since any moment.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    rewinds: int = 0
    rewind_bytes: int = 0
    drafted_by_depth: list[int] = field(default_factory=list[int])
    accepted_by_depth: list[int] = field(default_factory=list[int])
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    clock: Callable[[], float] = field(default=_now, repr=False, compare=False)
    _in_call: bool = field(default=False, repr=False, compare=False)
    _all_done: bool = field(default=False, repr=False, compare=False)

    @property
    def rejected(self) -> int:
        """Drafts that were not accepted."""
        return self.drafted - self.accepted

    def count_round(self, drafted: int, accepted: int) -> None:
        """Add one round's drafts."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        if not drafted:
            return
        for totals, depth in (
            (self.drafted_by_depth, drafted),
            (self.accepted_by_depth, accepted),
        ):
            totals.extend([0] * (drafted - len(totals)))
            for j in range(depth):
                totals[j] += 1

    def uncount_accepted(self, counted: int, kept: int) -> None:
        """Take back accepted drafts of the last round that were not emitted after all."""
        self.accepted -= counted - kept
        for j in range(kept, counted):
            self.accepted_by_depth[j] -= 1

    @contextmanager
    def phase(self, name: str, *, waited: bool = False) -> Generator[None, None, None]:
        """Charge the enclosed wall time to a phase; the caller evaluates inside.

        Work that was submitted before is waited for first, and charged to nobody; the clock
        stops once everything that was submitted inside is done.

        Args:
            name: one of `PHASES`.
            waited: the enclosed lines wait themselves for whatever they submit, and call nobody
                else's code; asking once more takes as long as a wait.
        """
        if not self._all_done:
            mx.synchronize()
        start = self.clock()
        failed = True
        try:
            yield
            failed = False
        finally:
            if failed or not waited:
                mx.synchronize()
            self.seconds[name] += self.clock() - start
            self._all_done = self._in_call

    def begin_call(self) -> None:
        """Phases from now on belong to one call, and nothing is submitted between them.

        So only the first has to wait for earlier work: waiting takes a thread's turn, tens of
        microseconds, even if there is nothing to wait for.
        """
        self._in_call = True

    def end_call(self) -> None:
        """Anybody may submit anything again."""
        self._in_call = self._all_done = False
