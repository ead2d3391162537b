"""Refuses to draft on one model, and decodes it plainly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Generated, Options


class RefusingSession(BuiltinSession):
    """K=0 only; `after` is added to the tokens of plain decoding once it has refused."""

    refused = False
    after = 0

    def generate(self, tokens: Sequence[int], **arguments: Any) -> Generated:
        """Refuse any K but 0."""
        if arguments["num_draft_tokens"]:
            RefusingSession.refused = True
            raise ValueError("unsupported: this cache cannot be rewound")
        made = super().generate(tokens, **arguments)
        moved = self.after if RefusingSession.refused else 0
        return Generated(tuple((t + moved) % 256 for t in made.tokens), 0, 0)


class WrongInstead(RefusingSession):
    """Drafts all the same, and emits other tokens than K=0."""

    def generate(self, tokens: Sequence[int], **arguments: Any) -> Generated:
        """Every token plus one where drafts were asked for."""
        made = BuiltinSession.generate(self, tokens, **arguments)
        moved = int(arguments["num_draft_tokens"] > 0)
        return replace(made, tokens=tuple((t + moved) % 256 for t in made.tokens))


class BrokenAfter(RefusingSession):
    """Refuses, and is not what it was."""

    after = 1


class Refuses(BuiltinRuntime):
    """The builtin runtime, refusing drafts."""

    def __init__(self, session: type[RefusingSession] = RefusingSession) -> None:
        RefusingSession.refused = False
        self.session = session

    def open(self, model: str, checkpoint: Path, options: Options) -> RefusingSession:
        """As the builtin runtime."""
        return self.session(*super().open(model, checkpoint, options).parts)
