"""Hands out the very arrays its caches go on writing into."""

from pathlib import Path
from typing import Any

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class LiveSession(BuiltinSession):
    """Refreshes arrays it handed out before."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._shown: dict[str, mx.array] = {}

    def state(self) -> dict[str, mx.array]:
        """Write today's values into yesterday's arrays where the shapes allow it."""
        for name, array in super().state().items():
            shown = self._shown.get(name)
            if shown is not None and shown.shape == array.shape and array.ndim:
                shown[:] = array
            else:
                self._shown[name] = array
        return dict(self._shown)


class LiveViews(BuiltinRuntime):
    """The builtin runtime with live arrays."""

    def open(self, model: str, checkpoint: Path, options: Options) -> LiveSession:
        """As the builtin runtime."""
        return LiveSession(*super().open(model, checkpoint, options).parts)
