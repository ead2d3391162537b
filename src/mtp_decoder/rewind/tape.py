"""Strategy `tape`: replay the recurrence on its own inputs.

The verify pass tapes what entered the state at every position: the rows of the short
convolution, the decay and write gates before activation, the rows of the PLE's convolution.
That is a few kilobytes a position and layer, against megabytes for the state itself. A
rewind restores the state from before the pass and runs convolution and recurrence, and
nothing else, over the kept rows.
"""

from __future__ import annotations

import mlx.core as mx

from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.target import Tape


class TapeUndo(RecurrentUndo):
    """Undo by replaying taped recurrence inputs."""

    tape: Tape

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass, taped."""
        self.tokens = tokens
        out, self.tape = self.layer.record(x, tokens, self.cache)
        return out

    def rewind(self, keep: int) -> None:
        """Restore, then advance by the first `keep` taped rows."""
        self.restore()
        if keep:
            kept = {name: rows[:, :keep] for name, rows in self.tape.items()}
            self.layer.advance_tape(kept, self.tokens[:, :keep], self.cache)

    def nbytes(self) -> int:
        """The tape."""
        return sum(rows.nbytes for rows in self.tape.values())
