"""What the four strategies share: the slots of a recurrent layer from before the pass.

A slot is replaced, never written into, so the arrays from before cost no copy; they are
kept alive until the round is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from mtp_decoder.target import RecurrentLayer


class RecurrentUndo(ABC):
    """Undo of an `ArraysCache`; the strategies say how the kept positions come back."""

    tokens: mx.array

    def __init__(self, layer: RecurrentLayer, cache: ArraysCache) -> None:
        self.layer = layer
        self.cache = cache
        self.before: list[mx.array | None] = list(cache.cache)

    def restore(self) -> None:
        """Put the slots back to before the pass."""
        self.cache.cache = list(self.before)

    @abstractmethod
    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """Run the layer over T positions: x [B, T, W] to [B, T, W]."""

    @abstractmethod
    def rewind(self, keep: int) -> None:
        """Leave the slots as if only the first `keep` positions had been seen."""

    @abstractmethod
    def nbytes(self) -> int:
        """Count the bytes remembered, without the state from before the pass."""
