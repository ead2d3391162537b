"""Strategy `snapshot`: keep the whole state after every position.

The verify pass runs the recurrence one position at a time and keeps every state it passes
through. A rewind picks one. Nothing is computed again; the price is memory, the full state
of every layer for every position.
"""

from __future__ import annotations

import mlx.core as mx

from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.target import Slots


class SnapshotUndo(RecurrentUndo):
    """Undo by picking the state kept after a position."""

    states: list[Slots]

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass; keeps the state after every position."""
        self.tokens, self.states = tokens, []
        return self.layer.record(x, tokens, self.cache, self.states)[0]

    def rewind(self, keep: int) -> None:
        """Pick the state after the first `keep` positions."""
        if keep:
            self.cache.cache = list(self.states[keep - 1])
        else:
            self.restore()

    def nbytes(self) -> int:
        """All states kept."""
        return sum(array.nbytes for slots in self.states for array in slots)
