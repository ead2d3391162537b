"""Row-exact mode: every row of a verify pass is computed as a one-token step computes it.

A GPU picks its kernel by the number of rows, so a verify pass of K+1 rows rounds otherwise than
K+1 steps of one row, and a right decoder emits other tokens with drafts than without. Here each
layer sees one row a call. Nothing is left by which rows could differ, on any backend: this mode
is exact by construction, and costs about as much as the steps it stands for.

A model that knows a cheaper way offers it as `row_exact()`; see `mtp_decoder.qwen.row_exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import mlx.core as mx

from mtp_decoder.target import Head, Layer, PooledLayer, RecurrentLayer, Slots, Tape, Target


@runtime_checkable
class RowExactTarget(Protocol):
    """A target with a row-exact form of its own."""

    def row_exact(self) -> Target:
        """The same model over the same weights and caches, exact by row."""
        ...


def row_exact(target: Target) -> Target:
    """A target over the same weights and caches whose rows are those of one-token steps."""
    return target.row_exact() if isinstance(target, RowExactTarget) else RowByRowTarget(target)


def row_exact_head(head: Head) -> Head:
    """A head over the same weights and caches whose rows are those of one-pair calls."""
    return RowByRowHead(head)


class RowByRowLayer:
    """A layer that sees one position a call."""

    def __init__(self, layer: Layer) -> None:
        self.wrapped = layer

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """As the layer, T calls for x [B, T, W]."""
        return joined([self.wrapped(*row, cache) for row in pairs_of(x, tokens)])


class RowByRowPooledLayer(RowByRowLayer):
    """Likewise, with pooled index keys."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self.pooled_ratio: int = layer.pooled_ratio


class RowByRowRecurrentLayer(RowByRowLayer):
    """Likewise, with a state in slots."""

    wrapped: RecurrentLayer

    def __init__(self, layer: RecurrentLayer) -> None:
        super().__init__(layer)
        self.slots = layer.slots

    def record(
        self, x: mx.array, tokens: mx.array, cache: Any, states: list[Slots] | None = None
    ) -> tuple[mx.array, Tape]:
        """As the layer; the tape's rows are those of the calls."""
        done = [self.wrapped.record(*row, cache, states) for row in pairs_of(x, tokens)]
        tapes = [tape for _, tape in done]
        tape = {name: joined([rows[name] for rows in tapes]) for name in tapes[0]}
        return joined([out for out, _ in done]), tape

    def advance(self, x: mx.array, tokens: mx.array, cache: Any) -> None:
        """As the layer."""
        for row in pairs_of(x, tokens):
            self.wrapped.advance(*row, cache)

    def advance_tape(self, tape: Tape, tokens: mx.array, cache: Any) -> None:
        """As the layer."""
        for at in range(tokens.shape[1]):
            row = {name: rows[:, at : at + 1] for name, rows in tape.items()}
            self.wrapped.advance_tape(row, tokens[:, at : at + 1], cache)


class RowByRowTarget:
    """A target whose layers and output projection see one position a call."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.vocab_size = target.vocab_size
        self.layers: list[Layer] = [_row_by_row(layer) for layer in target.layers]

    def make_cache(self) -> list[Any]:
        """As the target."""
        return self._target.make_cache()

    def embed(self, tokens: mx.array) -> mx.array:
        """As the target: a lookup."""
        return self._target.embed(tokens)

    def logits(self, hidden: mx.array) -> mx.array:
        """As the target, T calls for hidden [B, T, W]."""
        return joined([self._target.logits(row) for row in rows_of(hidden)])


class RowByRowHead:
    """A head that sees one pair a call."""

    def __init__(self, head: Head) -> None:
        self._head = head

    @property
    def layers(self) -> Sequence[Layer]:
        """The head's own."""
        return self._head.layers

    def make_cache(self) -> list[Any]:
        """As the head."""
        return self._head.make_cache()

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """As the head, T calls for hidden [B, T, W]."""
        done = [self._head(*row, cache) for row in pairs_of(hidden, tokens)]
        return joined([logits for logits, _ in done]), joined([after for _, after in done])


def _row_by_row(layer: Layer) -> RowByRowLayer:
    if isinstance(layer, RecurrentLayer):
        return RowByRowRecurrentLayer(layer)
    return RowByRowPooledLayer(layer) if isinstance(layer, PooledLayer) else RowByRowLayer(layer)


def rows_of(array: mx.array) -> list[mx.array]:
    """The positions of an array [B, T, ...] one by one, each [B, 1, ...]."""
    return [array[:, t : t + 1] for t in range(array.shape[1])]


def pairs_of(x: mx.array, tokens: mx.array) -> list[tuple[mx.array, mx.array]]:
    """The positions of two arrays [B, T, ...] one by one."""
    return list(zip(rows_of(x), rows_of(tokens), strict=True))


def joined(rows: list[mx.array]) -> mx.array:
    """Rows [B, 1, ...] as one array [B, T, ...]."""
    return rows[0] if len(rows) == 1 else mx.concatenate(rows, axis=1)


def same_bits(one: mx.array, two: mx.array) -> bool:
    """Whether two arrays of numbers are of one type and shape and have the same bytes.

    `mx.array_equal` takes zeros of two signs and numbers of two types for equal.
    """
    if (one.shape, one.dtype) != (two.shape, two.dtype):
        return False
    return bool(mx.array_equal(one.view(mx.uint8), two.view(mx.uint8)).item())
