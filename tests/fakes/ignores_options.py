"""Opens sessions with some options replaced: a runtime that takes arguments and drops them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options


class IgnoresOptions(BuiltinRuntime):
    """The builtin runtime, which decodes as it likes where it is asked for more than greedy."""

    def __init__(self, **likes: Any) -> None:
        self._likes = likes

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime, with other options."""
        likes = {} if options.greedy else self._likes
        return super().open(model, checkpoint, replace(options, **likes))
