"""Random numbers that are a function of seed, position and purpose, and of nothing else.

No generator advances: how many drafts were made, rejected, cancelled or cut changes no number.
A number of a position is used again when its draft was dropped before it was judged; nothing
emitted so far depends on it, so the law is as with fresh ones.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum

import mlx.core as mx


class Purpose(IntEnum):
    """What a number is for."""

    TOKEN = 0  # the target's token
    DRAFT = 1  # the head's
    ACCEPT = 2  # whether the draft stands


def gumbel(seed: int, position: int, size: int) -> mx.array:
    """Gumbel noise [size], float32, for the token at a position of the sequence.

    The draft of a position is drawn with the token's own noise: where head and target agree on
    the law they take the same token.
    """
    return mx.random.gumbel((size,), key=mx.random.key(_bits(seed, position, Purpose.TOKEN)))


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A number in [0, 1), a multiple of 2^-53."""
    return (_bits(seed, position, purpose) >> 11) * 2.0**-53


def _bits(seed: int, position: int, purpose: Purpose) -> int:
    """64 bits; a hash, so that neighbouring seeds and positions have nothing in common."""
    counter = struct.pack("<QQQ", seed, position, purpose)
    return int.from_bytes(hashlib.blake2b(counter, digest_size=8).digest(), "little")
