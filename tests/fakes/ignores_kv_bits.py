"""Lists quantised keys and values, and keeps plain ones."""

from dataclasses import replace
from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class IgnoresKvBits(BuiltinRuntime):
    """The builtin runtime, deaf to one option."""

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        return super().open(model, checkpoint, replace(options, kv_bits=0))
