"""The small protocol a model offers to be decoded with drafts.

A target is an embedding, layers and an output projection, so that the decoder holds the
residual between the layers. A layer whose state cannot be cut back (recurrence, short
convolution, n-gram history) also offers three ways to advance that state again; which one
is used is the rewind strategy's choice.

Shapes: B batch, T positions of this call, W width of the residual, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import mlx.core as mx

Tape = dict[str, mx.array]
Slots = tuple[mx.array, ...]


class Layer(Protocol):
    """One layer of a target or a head."""

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any, /) -> mx.array:
        """Map x [B, T, W] and tokens [B, T] to [B, T, W]; advance the cache by T positions."""
        ...


@runtime_checkable
class RecurrentLayer(Protocol):
    """A layer whose state lives in the slots of an mlx-lm `ArraysCache`.

    `slots` names the arrays in order, for example ("conv", "recurrent").
    """

    slots: tuple[str, ...]

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any, /) -> mx.array:
        """As `Layer`."""
        ...

    def record(
        self, x: mx.array, tokens: mx.array, cache: Any, states: list[Slots] | None = None, /
    ) -> tuple[mx.array, Tape]:
        """As `__call__`, and returns a tape of arrays [B, T, ...] for `advance_tape`.

        `states`, if given, receives the slots' arrays after every position.
        """
        ...

    def advance(self, x: mx.array, tokens: mx.array, cache: Any, /) -> None:
        """Advance the state alone by x [B, T, W]; runs no feed-forward block, no expert."""
        ...

    def advance_tape(self, tape: Tape, tokens: mx.array, cache: Any, /) -> None:
        """Advance the state alone by taped inputs; runs no projection, no expert."""
        ...


@runtime_checkable
class PooledLayer(Protocol):
    """A layer with pooled index keys, in a `CacheList` of K/V, raw index keys, pooled rows."""

    pooled_ratio: int


class Target(Protocol):
    """A model to decode."""

    vocab_size: int

    @property
    def layers(self) -> Sequence[Layer]:
        """The layers, in order."""
        ...

    def make_cache(self) -> list[Any]:
        """One empty mlx-lm cache a layer."""
        ...

    def embed(self, tokens: mx.array, /) -> mx.array:
        """Tokens [B, T] to the residual [B, T, W] the first layer reads."""
        ...

    def logits(self, hidden: mx.array, /) -> mx.array:
        """The residual after the last layer [B, T, W] to logits [B, T, V]."""
        ...


class Head(Protocol):
    """An MTP head: from (hidden of position i, token i+1) to the draft of token i+2."""

    @property
    def layers(self) -> Sequence[Layer]:
        """The layers, in order."""
        ...

    def make_cache(self) -> list[Any]:
        """One empty mlx-lm cache a layer."""
        ...

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any], /
    ) -> tuple[mx.array, mx.array]:
        """Pairs (hidden [B, T, W], tokens [B, T]) to draft logits and the chain's hidden.

        Returns:
            Logits [B, T, V], and the hidden [B, T, W] with which the next draft is made.
        """
        ...
