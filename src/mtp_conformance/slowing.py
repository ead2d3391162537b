"""Arrays that wait for a long computation, to see which timer waits for them.

What is slowed has the same bits, and is not evaluated. An adapter with `slow-rewind` uses this;
the harness knows how long the computation takes by itself. Needs mlx alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

_SIZE = 2**20
"""Elements that one step goes over."""
_FEW = 8
"""Operations of more steps go over more elements: mlx blocks who submits more than some ten."""
_WIDEST = 8
"""Of so many steps at most, or memory would be short."""


def slowed(arrays: Sequence[mx.array], steps: int) -> list[mx.array]:
    """The arrays, which now all wait for a computation of so many steps, one after the other."""
    done = _long(steps)
    return [mx.where(done, array, array) for array in arrays]


def _long(steps: int) -> mx.array:
    """True, after so many steps."""
    at_once = min(_WIDEST, max(1, steps // _FEW))
    values = mx.full(at_once * _SIZE, 0.5)
    for _ in range(-(-steps // at_once)):
        values = mx.sin(values)
    return values[0] > -1.0
