"""Selection over cells, as llama.cpp does it: not the specification, but known to exist."""

from __future__ import annotations

import numpy as np

from tests.oracle.trajectory import Array


def selected_by_cells(scores: Array, position: int, keys: int, budget: int, ratio: int) -> Array:
    """Which of `keys` a query at `position` attends to, if cells are ranked instead of blocks.

    Every cell of a complete block has its block's score, the tail comes first, and the best
    budget + ratio - 1 cells are taken: with a short tail, part of one more block.

    Args:
        scores: of the complete blocks the query sees [blocks], -1 after them.
        position: of the query.
        keys: length of the result.
        budget: tokens to select from complete blocks.
        ratio: tokens of a block.
    """
    complete = (position + 1) // ratio
    cells = np.full(keys, -np.inf)
    cells[: complete * ratio] = np.repeat(scores[:complete], ratio)
    cells[complete * ratio : position + 1] = np.inf
    best = np.argsort(-cells, kind="stable")[: budget + ratio - 1]
    chosen = np.zeros(keys, np.bool_)
    chosen[best] = True
    return chosen & (cells > -np.inf)
