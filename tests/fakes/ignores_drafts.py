"""Takes injected drafts, throws them away and decodes plainly: a try at a vacuous pass."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome


class PlainSession(BuiltinSession):
    """Never verifies a draft."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Run a plain step whatever the drafts are."""
        del drafts
        return super().round(())

    def generate(self, tokens: Sequence[int], *, max_tokens: int, **ignored: Any) -> Generated:
        """Decode plainly."""
        del ignored
        return super().generate(tokens, num_draft_tokens=0, max_tokens=max_tokens)


class IgnoresDrafts(BuiltinRuntime):
    """The builtin runtime without speculation; shows no logits, whose rows would tell."""

    def describe(self) -> Description:
        """Everything but logits."""
        card = super().describe()
        return Description(
            "ignores-drafts",
            card.versions,
            card.capabilities - {Capability.LOGITS},
            card.models,
            card.strategies,
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> PlainSession:
        """As the builtin runtime."""
        return PlainSession(*super().open(model, checkpoint, options).parts)
