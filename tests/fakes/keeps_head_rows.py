"""Cancelling puts its target back and leaves the head's rows of the cancelled round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class HalfCancelledSession(BuiltinSession):
    """Forgets the head."""

    def cancel(self, drafts: Sequence[int] = ()) -> None:
        """Cancel without cutting the head's rows."""
        drafter: Any = vars(self.session)["_drafter"]
        drafter.go_back = lambda place: setattr(drafter, "hidden", place.hidden)
        super().cancel(drafts)
        del drafter.go_back


class KeepsHeadRows(BuiltinRuntime):
    """The builtin runtime with cancels that do half."""

    def open(self, model: str, checkpoint: Path, options: Options) -> HalfCancelledSession:
        """As the builtin runtime."""
        return HalfCancelledSession(*super().open(model, checkpoint, options).parts)
