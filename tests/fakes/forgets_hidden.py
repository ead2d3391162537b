"""Its files hold the caches, and not the hidden that waits for the next draft."""

from pathlib import Path
from typing import Any

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class HiddenlessSession(BuiltinSession):
    """Drafts from zeros once it was restored."""

    def restore(self, file: Path) -> None:
        """Restore, and lose the hidden."""
        super().restore(file)
        drafter: Any = vars(self.session)["_drafter"]
        drafter.hidden = mx.zeros_like(drafter.hidden)


class ForgetsHidden(BuiltinRuntime):
    """The builtin runtime with files that lack something."""

    def open(self, model: str, checkpoint: Path, options: Options) -> HiddenlessSession:
        """As the builtin runtime."""
        return HiddenlessSession(*super().open(model, checkpoint, options).parts)
