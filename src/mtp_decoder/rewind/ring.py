"""Sliding window: what the ring overwrote or dropped is put back.

A ring holds the last `max_size` rows. New rows push old ones out, so a trim alone leaves a
window with holes. The rows from before the pass are kept beside it (one window a layer), and
a rewind rebuilds the ring from the newest of them and the rows that are kept.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from mtp_decoder.row_exact import RowByRowLayer, joined, pairs_of
from mtp_decoder.target import Layer


def temporal_rows(cache: RotatingKVCache) -> tuple[mx.array, mx.array] | None:
    """Keys and values [B, KV, n, D], oldest first, unused rows left out; None if empty."""
    keys, values, offset, _, _, index = cache.state
    if keys is None or values is None:
        return None
    if index < keys.shape[2] <= offset:
        parts = [[a[:, :, index:], a[:, :, :index]] for a in (keys, values)]
        keys, values = (mx.concatenate(part, axis=2) for part in parts)
        return keys, values
    return keys[:, :, :index], values[:, :, :index]


class RingUndo:
    """Undo of a `RotatingKVCache` that keeps no head tokens."""

    def __init__(self, layer: Layer, cache: RotatingKVCache) -> None:
        self._layer = layer
        self._cache = cache
        self._start: int = cache.offset
        self._layout = _copied(cache.state)
        before = temporal_rows(cache)
        self._before = None if before is None else _copied(before)
        self._new: tuple[mx.array, ...] = ()

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass; remembers the new rows."""
        if not isinstance(self._layer, RowByRowLayer):
            return self._run(x, tokens)
        # One by one a ring holds no more than its window, so each row is taken as it comes.
        out: list[mx.array] = []
        new: list[tuple[mx.array, ...]] = []
        for row in pairs_of(x, tokens):
            out.append(self._run(*row))
            new.append(self._new)
        keys, values = zip(*new, strict=True)
        self._new = mx.concatenate(list(keys), axis=2), mx.concatenate(list(values), axis=2)
        return joined(out)

    def _run(self, x: mx.array, tokens: mx.array) -> mx.array:
        out = self._layer(x, tokens, self._cache)
        after = temporal_rows(self._cache)
        assert after is not None
        width = tokens.shape[1]
        self._new = tuple(mx.array(rows[:, :, -width:]) for rows in after)
        return out

    def rewind(self, keep: int) -> None:
        """Rebuild the ring from the window before the pass and the first `keep` new rows."""
        cache = self._cache
        if keep == 0:  # also after a pass that failed before there were new rows
            cache.state = _copied(self._layout)
            return
        rows = tuple(new[:, :, :keep] for new in self._new)
        if self._before is not None:
            pairs = zip(self._before, rows, strict=True)
            rows = tuple(mx.concatenate([old, new], axis=2) for old, new in pairs)
        keys, values = (mx.contiguous(part[:, :, -cache.max_size :]) for part in rows)
        size = keys.shape[2]
        cache.state = (keys, values, self._start + keep, cache.keep, cache.max_size, size)

    def nbytes(self) -> int:
        """The window before the pass and the new rows."""
        return sum(rows.nbytes for rows in (*(self._before or ()), *self._new))


def _copied(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same with every array copied: a cache writes into its own arrays in place."""
    return tuple(mx.array(part) if isinstance(part, mx.array) else part for part in parts)
