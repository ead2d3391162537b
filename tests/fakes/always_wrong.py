"""Emits the token after the right one, in every round."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Capability, Description, Options, Outcome


class AlwaysWrongSession(BuiltinSession):
    """Wrong tokens where drafts were given; plain steps are right."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Emit every token plus one."""
        outcome = super().round(drafts)
        if not drafts:
            return outcome
        return replace(outcome, tokens=tuple(token + 1 for token in outcome.tokens))


class AlwaysWrong(BuiltinRuntime):
    """The builtin runtime with wrong tokens, and without the logits that would give it away."""

    def describe(self) -> Description:
        """As the builtin runtime, without logits."""
        card = super().describe()
        return replace(card, capabilities=card.capabilities - {Capability.LOGITS})

    def open(self, model: str, checkpoint: Path, options: Options) -> AlwaysWrongSession:
        """As the builtin runtime."""
        session = super().open(model, checkpoint, options)
        return AlwaysWrongSession(*session.parts)
