"""Keys and values: rows are cut off by the offset.

Rows beyond the offset stay in the buffer; nothing reads them, and the next call writes over
them.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mtp_decoder.errors import RewindError
from mtp_decoder.target import Layer


def cut_rows(cache: Any, length: int) -> None:
    """Trim a trimmable cache to `length` rows; one cut to nothing is as it was when made.

    Raises:
        RewindError: the cache holds fewer rows, or would not give them up.
    """
    held = cache.offset
    if held < length or cache.trim(held - length) != held - length:
        raise RewindError(f"a cache of {held} rows cannot be cut back to {length}")
    if length == 0:
        cache.keys = cache.values = None


class KVUndo:
    """Undo of `KVCache` and `QuantizedKVCache`."""

    def __init__(self, layer: Layer, cache: Any) -> None:
        self._layer = layer
        self._cache = cache
        self._start: int = cache.offset

    def run(self, x: mx.array, tokens: mx.array) -> mx.array:
        """The layer's forward pass; nothing needs to be remembered."""
        return self._layer(x, tokens, self._cache)

    def rewind(self, keep: int) -> None:
        """Cut the rows after the first `keep` new ones."""
        cut_rows(self._cache, self._start + keep)

    def nbytes(self) -> int:
        """Nothing is remembered."""
        return 0
