"""Lists the state capability and has no array to show."""

from pathlib import Path

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class StatelessSession(BuiltinSession):
    """No arrays."""

    def state(self) -> dict[str, mx.array]:
        """Nothing."""
        return {}


class ClaimsState(BuiltinRuntime):
    """The builtin runtime without its arrays."""

    def open(self, model: str, checkpoint: Path, options: Options) -> StatelessSession:
        """As the builtin runtime."""
        return StatelessSession(*super().open(model, checkpoint, options).parts)
