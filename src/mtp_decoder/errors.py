"""What can go wrong, one class a kind. Every message says what to do; no cache was touched."""

from __future__ import annotations

import mlx.core as mx


class DecoderError(ValueError):
    """Bad input to the decoder."""


class RewindError(DecoderError):
    """A rewind outside the round that was verified last."""


class UnrewindableCacheError(DecoderError):
    """A layer whose cache no rewind is known for; names the layer and the cache's class."""


class CacheMismatchError(DecoderError):
    """A prompt cache that was not made for this model and head, or whose layers disagree."""


class CheckpointError(DecoderError):
    """A model folder the decoder cannot use; names the file or tensor."""


class SessionFileError(DecoderError):
    """A file that no session can be restored from, or saved to; names the file and the reason."""


class MissingKernelError(DecoderError):
    """Something this device's backend of mlx has no kernel for; names it and what to do."""


class ExpertReadError(DecoderError):
    """An expert that cannot be read from disk (any more); names the file and what to do."""


def described(value: object) -> str:
    """What a stranger's code returned, for a message: an array's dtype and shape, else the type."""
    if isinstance(value, mx.array):
        return f"{value.dtype} {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"
