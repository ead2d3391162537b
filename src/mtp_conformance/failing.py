"""One evaluation of a call after the other made to fail, each in a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from mtp_conformance.checked import CheckedSession
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.oracles import Oracles

T = TypeVar("T")
MOST = 60
"""Evaluations of one call that are made to fail, in turn."""


def each_failure(
    oracles: Oracles, make: Callable[[], CheckedSession], call: Callable[[CheckedSession], T]
) -> Iterator[tuple[int, CheckedSession, T | None]]:
    """Fail one evaluation of a call after the other, until it goes through without.

    Args:
        oracles: of the runtime.
        make: a session in which the call is due.
        call: what is made to fail.

    Yields:
        Number of the evaluation, the session, and what the call gave if it gave anything.
    """
    for number in range(1, MOST + 1):
        session, done = make(), None
        with oracles.runtime.failing(number) as raised:
            try:
                done = call(session)
            except RuntimeFailure:
                done = None
        if not raised[0]:
            return
        yield number, session, done
