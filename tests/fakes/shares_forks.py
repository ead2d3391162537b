"""`fork` gives the same session back."""

from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class SharedSession(BuiltinSession):
    """Its own fork."""

    def fork(self, options: Options | None = None) -> BuiltinSession:
        """Return the same session."""
        del options
        return self


class SharesForks(BuiltinRuntime):
    """The builtin runtime with forks that are no copies."""

    def open(self, model: str, checkpoint: Path, options: Options) -> SharedSession:
        """As the builtin runtime."""
        return SharedSession(*super().open(model, checkpoint, options).parts)
