"""What it "saves" is a reference to the session, which goes on."""

from pathlib import Path
from typing import Any

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options

_SAVED: dict[Path, Any] = {}


class ReferringSession(BuiltinSession):
    """Writes an empty file."""

    def save(self, file: Path) -> None:
        """Keep the session itself."""
        file.touch()
        _SAVED[file] = self.session

    def restore(self, file: Path) -> None:
        """Go on from where that session is by now."""
        self.session = _SAVED[file].fork()


class SavesByReference(BuiltinRuntime):
    """The builtin runtime with files that are none."""

    def open(self, model: str, checkpoint: Path, options: Options) -> ReferringSession:
        """As the builtin runtime."""
        return ReferringSession(*super().open(model, checkpoint, options).parts)
