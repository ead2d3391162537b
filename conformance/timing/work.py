"""Work beside which a round is short, and clocks outside the runtime.

How long it takes is compared with what it is part of, at the same moment: the computer may be busy.
"""

import time
from collections.abc import Callable
from functools import cache

import mlx.core as mx

from mtp_conformance.slowing import slowed

LONG = 0.04
"""Seconds of work that a round is short beside."""
SHARE = 0.4
"""Part of the time of a round with that work in it that has to be charged to its place."""
TRIES = 4
"""The best of so many counts, up to the first that is good: a busy computer makes any part long.

Each has twice the work of the one before, so that a right timer's share comes nearer to all of it,
and a wrong one's nearer to nothing.
"""


@cache
def steps() -> int:
    """How many steps of work are long on this device."""
    count = 4
    while _seconds_of(count) < LONG:
        count *= 2
    return count


def _seconds_of(count: int) -> float:
    work = slowed([mx.zeros(1)], count)
    return seconds(lambda: mx.eval(work))


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best(share: Callable[[int], float], enough: float) -> float:
    """The largest of some shares, of longer and longer work, measured until one is enough.

    Args:
        share: of so many steps of work.
        enough: at which share to stop.
    """
    found = 0.0
    for attempt in range(TRIES):
        found = max(found, share(steps() << attempt))
        if found >= enough:
            break
    return found
