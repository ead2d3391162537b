"""A trajectory: everything one implementation computes on the way through a prompt.

Names say what a quantity is, in the canonical layout of the state (`reference_models/layout.py`),
whoever computed it. T tokens went in one at a time; H, W, C, ... as in the reference models.

    logits                 [T, V]            one pass over all tokens
    logits.steps           [T, V]            one token at a time, with a cache
    logits.parts           [T, V]            in parts of several tokens, with a cache
    hidden                 [T, W]            the residual after the last layer, which a head reads
    layers.I.conv          [T, C]            the row a token adds to the convolution's window
    layers.I.recurrent     [T, Hv, Dv, Dk]   S after every token
    layers.I.keys, values  [T, KV, D]        the row a token adds
    layers.I.index_keys    [T, Di]           likewise, un-normed and un-rotated
    layers.I.pooled        [T // r, Di]      pooled rows
    layers.I.scores        [T, T // r]       block scores of every query, -1 where none is visible
    layers.I.selected      [T, T]            which keys a query attends to
    layers.I.ngram         [T]               the id a token adds to the n-gram history
    layers.I.ngram_rows    [T, heads]        rows of the n-gram table
    layers.I.ple_conv      [T, W]            the row a token adds to the PLE's window
    layers.I.ple_added     [T, W]            what the PLE adds to the residual
    head.logits            [T-1, V]          of every pair (h_i, t_{i+1})
    head.I.keys, ...       as above          of the head's layers, by pairs
    head.chain             [K, V]            K drafts after the last pair, its own hidden fed back

A window that moves by one row a token is stored as the rows that moved in. That its older rows
are the rows before is checked where it is read, after every token (`Recorder.rows`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Trajectory = dict[str, Array]

LENGTH = 24
"""Tokens of the prompt: selection is sparse from 11, the ring of 8 wraps, texts end at 2 and 14."""

PARTS = ((0, 13), (13, 14), (14, 20), (20, 24))
WAYS = ("logits.steps", "logits.parts")
"""Other ways to the same logits: in float64 they agree, so what is stored is `logits` alone."""

LOGITS = ("logits", *WAYS, "head.logits", "head.chain")
"""Quantities in which a likeliest token is looked for."""

CHAIN = 4
"""Drafts of the chain."""


class TrajectoryError(ValueError):
    """A live state that cannot be: of another size than due, or whose older rows changed."""


class Recorder:
    """Collects a trajectory token by token."""

    def __init__(self) -> None:
        self._taken: dict[str, list[Array]] = {}

    def take(self, name: str, value: Array) -> None:
        """Add one token's value."""
        self._taken.setdefault(name, []).append(np.array(value))

    def rows(self, name: str, live: Array, size: int | None = None, before: float = 0.0) -> None:
        """Add the newest row of a live state, whose older rows must be the rows before.

        Args:
            name: of the quantity.
            live: rows on the first axis, the newest last.
            size: how many rows the state has after any number of tokens; None if all of them.
            before: what a row holds that is older than the first token.

        Raises:
            TrajectoryError: `live` is no continuation of what was given before.
        """
        taken = self._taken.setdefault(name, [])
        due = len(taken) + 1 if size is None else size
        if live.shape[0] != due:
            raise TrajectoryError(
                f"{name}: {live.shape[0]} rows after {len(taken) + 1} tokens, due {due}"
            )
        start = np.full((due, *live.shape[1:]), before, live.dtype)
        history = np.concatenate([start, np.stack(taken)]) if taken else start
        if due > 1 and not np.array_equal(live[:-1], history[1 - due :]):
            raise TrajectoryError(f"{name}: older rows changed at token {len(taken) + 1}")
        taken.append(np.array(live[-1]))

    def trajectory(self) -> Trajectory:
        """What was collected, tokens on the first axis."""
        return {name: np.stack(taken) for name, taken in self._taken.items()}


def padded(rows: list[Array], width: int, fill: float) -> Array:
    """Rows of different lengths as one array [len(rows), width]."""
    out = np.full((len(rows), width), fill, rows[0].dtype)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return out
