"""Places in memory for experts: arrays [slots, ...] whose bytes are filled in place.

mlx never changes an array, but lets its memory be written to from outside, so that what is read
from disk need not be copied. It is then up to us that nothing still has to be computed from a
slot when it is filled anew; see `store.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import mlx.core as mx

from mtp_decoder.experts.layout import Part


class Slots:
    """`count` places for experts of the same parts.

    Attributes:
        stacks: by part, arrays [count, *shape] over the slots' memory.
    """

    def __init__(self, parts: Mapping[str, Part], count: int) -> None:
        self.count = count
        self._sizes = {name: part.nbytes for name, part in parts.items()}
        self._bytes: dict[str, memoryview] = {}
        self.stacks: dict[str, mx.array] = {}
        for name, part in parts.items():
            raw = mx.zeros((count, part.nbytes), mx.uint8)
            mx.eval(raw)
            self._bytes[name] = memoryview(cast("Any", raw)).cast("B")
            self.stacks[name] = raw.view(part.dtype).reshape(count, *part.shape)
        mx.eval(self.stacks)

    def memory(self, slot: int, part: str) -> memoryview:
        """The bytes of one part in one slot."""
        size = self._sizes[part]
        return self._bytes[part][slot * size : (slot + 1) * size]
