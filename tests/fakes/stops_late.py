"""It hands out what was asked for, and leaves its caches one token further."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Generated, Options, Outcome


class LateSession(BuiltinSession):
    """Decodes one token more than it emits, and goes on from there."""

    def generate(self, tokens: Sequence[int], **arguments: Any) -> Generated:
        """Emit all but the last token decoded."""
        made = super().generate(tokens, **arguments)
        self.session.round(drafts=[])
        return made


class HistorySession(BuiltinSession):
    """After rounds it goes on from the prompt it prefilled, without what it emitted since."""

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Keep a copy of the session after its prompt."""
        outcome = super().prefill(tokens)
        self._after_prompt = self.session.fork()
        return outcome

    def extend(self, tokens: Sequence[int]) -> Outcome:
        """Go on from the copy."""
        self.session = self._after_prompt
        return super().extend(tokens)


class StopsLate(BuiltinRuntime):
    """The builtin runtime with next turns that start elsewhere."""

    def __init__(self, session: type[BuiltinSession] = LateSession) -> None:
        self.session = session

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        return self.session(*super().open(model, checkpoint, options).parts)
