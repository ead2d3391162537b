"""Says it drafts eight tokens and verifies one."""

from collections.abc import Sequence
from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options, Outcome


class OneDraftSession(BuiltinSession):
    """Drops all drafts but the first."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Verify one draft."""
        return super().round(drafts[:1])


class LiesAboutK(BuiltinRuntime):
    """The builtin runtime with K clamped in silence."""

    def open(self, model: str, checkpoint: Path, options: Options) -> OneDraftSession:
        """As the builtin runtime."""
        return OneDraftSession(*super().open(model, checkpoint, options).parts)
