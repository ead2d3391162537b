"""Quantised keys and values: when a cache is quantised, and which ones can be.

Names and classes are mlx-lm's (`kv_bits`, `kv_group_size`, `quantized_kv_start`;
`QuantizedKVCache`). Caches are looked at before every pass and quantised once the target holds
`quantized_kv_start` tokens; with 0 no row is ever stored plainly, where mlx-lm stores the first
pass's so. A round before that point drafts no further than to it, so that every pass reads
the rows that a run without drafts reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, QuantizedKVCache

from mtp_decoder.errors import DecoderError, MissingKernelError
from mtp_decoder.target import Head, Target
from mtp_decoder.window import forward

BITS = (2, 4, 8)
"""Those that mlx-lm's cache has room for; it takes 3, 5 and 6 bits for whole parts of a word."""
_MISSING = re.compile(r"\bNo implementation|\bno \w+ implementation|\bNYI\b")
"""How mlx says that a backend lacks a kernel; any other error is somebody's fault."""
GROUP_SIZES = (32, 64, 128)
"""Those that `mx.quantize` takes."""

Caches = Sequence[Any]


@dataclass(frozen=True)
class KVQuantisation:
    """How keys and values are stored from `start` tokens on.

    Raises:
        DecoderError: there is no such quantisation.
    """

    bits: int
    group_size: int = 64
    start: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("kv_bits", self.bits, BITS),
            ("kv_group_size", self.group_size, GROUP_SIZES),
        ):
            if value not in known:
                choices = ", ".join(map(str, known))
                raise DecoderError(f"{name} must be one of {choices}, not {value}")
        if not isinstance(self.start, int) or self.start < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DecoderError(f"quantized_kv_start must be 0 or more, not {self.start!r}")

    def check(self, target: Target, head: Head | None) -> None:
        """Refuse a model whose keys and values cannot be stored so; runs a few tokens.

        Raises:
            DecoderError: names the first such layer and the reason.
            MissingKernelError: mlx cannot compute with rows stored so on this device.
        """
        token, caches = mx.array([[0]]), target.make_cache()
        hidden = forward(target, token, caches)
        self._check(caches, "layer")
        own = head.make_cache() if head is not None else []
        if head is not None:
            mx.eval(head(hidden, token, own))
            self._check(own, "head layer")
        mx.eval(hidden)
        try:
            self._read(target, head, caches, own)
        except RuntimeError as error:
            if _MISSING.search(str(error)) is None:
                raise
            raise MissingKernelError(
                f"mlx cannot compute with keys and values of {self.bits} bits in groups of "
                f"{self.group_size} on {mx.default_device()}: {error}; decode without kv_bits, or "
                "with another kv_group_size"
            ) from error

    def _read(self, target: Target, head: Head | None, caches: Caches, own: Caches) -> None:
        """Run passes of one and of several rows over what was quantised."""
        caches, own = ([self.quantised(cache) for cache in part] for part in (caches, own))
        for tokens in (mx.array([[0]]), mx.array([[0, 0, 0]])):
            hidden = forward(target, tokens, caches)
            if head is not None:
                mx.eval(head(hidden, tokens, own))
            mx.eval(hidden)

    def _check(self, caches: Sequence[Any], what: str) -> None:
        sizes = ", ".join(map(str, GROUP_SIZES))
        for index, cache in enumerate(caches):
            if isinstance(cache, ArraysCache):
                continue
            if not isinstance(cache, KVCache):
                raise DecoderError(
                    f"{what} {index}: a {type(cache).__name__} cannot be quantised; "
                    "decode without kv_bits"
                )
            for rows in (cache.keys, cache.values):
                if rows is not None and rows.shape[-1] % self.group_size:
                    raise DecoderError(
                        f"{what} {index}: rows of {rows.shape[-1]} do not divide into groups of "
                        f"{self.group_size}; kv_group_size can be {sizes}"
                    )

    def quantised(self, cache: Any) -> Any:
        """The cache with its rows quantised; the same one if it has no plain rows."""
        if not isinstance(cache, KVCache):
            return cache
        made = QuantizedKVCache(group_size=self.group_size, bits=self.bits)
        if cache.keys is not None:
            # As lists: mlx-lm writes later rows into them one by one.
            made.keys, made.values = (
                list(mx.quantize(rows, group_size=self.group_size, bits=self.bits))
                for rows in cast("tuple[mx.array, mx.array]", cache.keys_and_values())
            )
            made.offset = cache.offset
        return made

    def most_drafts(self, length: int) -> int | None:
        """How many drafts a round after so many tokens may have; None if any number."""
        return self.start - length - 1 if length < self.start else None
