"""Gives other logits every time it is asked."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options, Outcome

_CALLS = count(1)


class FlakySession(BuiltinSession):
    """Logits that drift from call to call."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Add a number never used before to all logits."""
        outcome = super().round(drafts)
        assert outcome.logits is not None
        return replace(outcome, logits=outcome.logits + 0.001 * next(_CALLS))


class Flaky(BuiltinRuntime):
    """The builtin runtime with drifting logits."""

    def open(self, model: str, checkpoint: Path, options: Options) -> FlakySession:
        """As the builtin runtime."""
        return FlakySession(*super().open(model, checkpoint, options).parts)
