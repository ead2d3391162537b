"""Rows sorted by expert before they are multiplied, and put back in order after it.

Rows of one expert lie together then, and its weights are fetched once. Every row keeps its own
product, so its bits do not depend on the order. mlx-lm's experts do this themselves from 64
(row, expert) pairs on.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

SORTED_FROM = 64
"""Pairs of a row and an expert from which on rows are sorted: mlx-lm's number."""


class Grouped:
    """An expert module that sees rows sorted by expert.

    Attributes:
        experts: the module, from (x [..., H], chosen [..., k]) to [..., k, H].
    """

    def __init__(self, experts: Any) -> None:
        self.experts = experts

    @property
    def calls(self) -> int:
        """How often the module was used."""
        return self.experts.calls

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """As the module."""
        if chosen.size < SORTED_FROM:
            return self.experts(x, chosen)
        flat = chosen.flatten()
        order = mx.argsort(flat)
        rows = x.reshape(-1, x.shape[-1])[order // chosen.shape[-1]]
        done = self.experts(rows[None], flat[order][None, :, None])
        back = done.reshape(flat.size, -1)[mx.argsort(order)]
        return back.reshape(*chosen.shape, -1)


class Ungrouped(Grouped):
    """An expert module that never sees enough rows at once to sort them."""

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """As the module."""
        k = chosen.shape[-1]
        rows, which = x.reshape(-1, x.shape[-1]), chosen.reshape(-1, k)
        size = max(1, (SORTED_FROM - 1) // k)
        done = [
            self.experts(rows[at : at + size][None], which[at : at + size][None])[0]
            for at in range(0, len(rows), size)
        ]
        return mx.concatenate(done).reshape(*chosen.shape, -1)
