"""Strategy `replay`: go back to before the pass and decode the kept tokens again.

The slow baseline the others are measured against. A single layer cannot replay alone, so
its undo only knows the way back to the start; `mtp_decoder.window` then runs the whole
target over the kept tokens.
"""

from __future__ import annotations

import mlx.core as mx

from mtp_decoder.errors import RewindError
from mtp_decoder.rewind.recurrent import RecurrentUndo


class ReplayUndo(RecurrentUndo):
    """Undo to the start of the pass."""

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass; nothing needs to be remembered."""
        return self.layer(x, tokens, self.cache)

    def rewind(self, keep: int) -> None:
        """Restore the state from before the pass.

        Raises:
            RewindError: asked for anything but the start.
        """
        if keep:
            raise RewindError("one layer cannot replay tokens without the others")
        self.restore()

    def nbytes(self) -> int:
        """Nothing is remembered."""
        return 0
