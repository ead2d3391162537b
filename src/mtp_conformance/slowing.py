"""Arrays that wait for a long computation, to see which timer waits for them.

What is slowed has the same bits, and is not evaluated. An adapter with `slow-rewind` uses this;
the harness knows how long the computation takes by itself. Needs mlx alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

_SIZE = 2**20
"""Of large arrays few operations are enough; mlx blocks who submits more than some ten of them."""


def slowed(arrays: Sequence[mx.array], steps: int) -> list[mx.array]:
    """The arrays, which now all wait for a computation of so many steps, one after the other."""
    done = _long(steps)
    return [mx.where(done, array, array) for array in arrays]


def _long(steps: int) -> mx.array:
    """True, after so many steps."""
    values = mx.full(_SIZE, 0.5)
    for _ in range(steps):
        values = mx.sin(values)
    return values[0] > -1.0
