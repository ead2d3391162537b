"""One verify pass over the target, and the way back from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mtp_decoder.errors import RewindError
from mtp_decoder.rewind import Rewind, make_undo
from mtp_decoder.submitting import by_parts
from mtp_decoder.target import Target


def forward(target: Target, tokens: mx.array, caches: Sequence[Any]) -> mx.array:
    """Run the target over tokens [B, T]; returns the residual after the last layer [B, T, W]."""
    x, early = target.embed(tokens), by_parts()
    for index, (layer, cache) in enumerate(zip(target.layers, caches, strict=True)):
        if early and index:
            mx.async_eval(x)  # the last layer's, too, would compute what a replay never reads
        x = layer(x, tokens, cache)
    return x


class Window:
    """The positions of one verify pass: anchor and drafts, T = K + 1.

    `run` makes the pass. Until the next pass begins, `rewind` can cut the target's caches
    back to any number of its positions, and again to fewer.
    """

    def __init__(self, target: Target, caches: Sequence[Any], strategy: Rewind) -> None:
        self._target = target
        self._caches = caches
        self._strategy = strategy
        self._undos = [
            make_undo(index, layer, cache, strategy)
            for index, (layer, cache) in enumerate(zip(target.layers, caches, strict=True))
        ]
        self._tokens: mx.array | None = None
        self._kept = 0

    @property
    def width(self) -> int:
        """Positions the pass ran over."""
        return 0 if self._tokens is None else self._tokens.shape[1]

    @property
    def kept(self) -> int:
        """Positions the caches hold now."""
        return self._kept

    def run(self, tokens: mx.array) -> mx.array:
        """Verify tokens [B, T]; returns the residual after the last layer [B, T, W]."""
        self._tokens, self._kept = tokens, tokens.shape[1]
        x, early = self._target.embed(tokens), by_parts()
        for index, undo in enumerate(self._undos):
            if early and index:
                mx.async_eval(x)
            x = undo.run(x, tokens)
        return x

    def rewind(self, keep: int) -> None:
        """Leave every cache as if only the first `keep` positions had been seen.

        Raises:
            RewindError: the window does not hold that many positions (any more).
        """
        if not 0 <= keep <= self._kept:
            raise RewindError(
                f"cannot rewind to {keep} positions: the round holds {self._kept}; "
                "only the last round can be undone"
            )
        if keep == self._kept:
            return
        replay = self._strategy is Rewind.REPLAY
        for undo in self._undos:
            undo.rewind(0 if replay else keep)
        if replay and keep and self._tokens is not None:
            forward(self._target, self._tokens[:, :keep], self._caches)
        self._kept = keep

    def abandon(self) -> None:
        """Leave every cache as before the window was made, whatever was run over them since."""
        for undo in self._undos:
            undo.rewind(0)
        self._kept = 0

    def nbytes(self) -> int:
        """Bytes the strategy remembers for this pass, over all layers."""
        return sum(undo.nbytes() for undo in self._undos)
