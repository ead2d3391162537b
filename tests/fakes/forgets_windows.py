"""A fork of it has every window of the short convolutions empty."""

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class ForgetfulSession(BuiltinSession):
    """Copies recurrent states and forgets the windows beside them."""

    def fork(self, options: Options | None = None) -> BuiltinSession:
        """A fork without its windows."""
        twin = super().fork(options)
        caches: list[Any] = vars(twin.session)["_caches"]
        for cache in caches:
            if isinstance(cache, ArraysCache) and cache[0] is not None:
                cache[0] = mx.zeros_like(cache[0])
        return twin


class ForgetsWindows(BuiltinRuntime):
    """The builtin runtime with forgetful forks."""

    def open(self, model: str, checkpoint: Path, options: Options) -> ForgetfulSession:
        """As the builtin runtime."""
        return ForgetfulSession(*super().open(model, checkpoint, options).parts)
