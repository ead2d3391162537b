"""Strategy `rerun`: run the mixer again on the layer's inputs.

The verify pass keeps the residual that entered the layer. A rewind restores the state from
before the pass and runs PLE, norm and mixer over the kept rows, without the feed-forward
block: no routed expert is read.
"""

from __future__ import annotations

import mlx.core as mx

from mtp_decoder.rewind.recurrent import RecurrentUndo


class RerunUndo(RecurrentUndo):
    """Undo by running the mixer alone on captured inputs."""

    inputs: mx.array

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass; keeps its input."""
        self.inputs, self.tokens = x, tokens
        return self.layer(x, tokens, self.cache)

    def rewind(self, keep: int) -> None:
        """Restore, then advance by the first `keep` captured inputs."""
        self.restore()
        if keep:
            self.layer.advance(self.inputs[:, :keep], self.tokens[:, :keep], self.cache)

    def nbytes(self) -> int:
        """The captured inputs."""
        return self.inputs.nbytes
