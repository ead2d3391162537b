"""Lists experts on disk, and keeps them in memory: deaf, or counting what never happened."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import EXPERT_COUNTERS, Options, Outcome


class IgnoresExperts(BuiltinRuntime):
    """The builtin runtime, deaf to budgets."""

    session = BuiltinSession

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        deaf = replace(options, expert_budget=0, head_expert_budget=0)
        return self.session(*super().open(model, checkpoint, deaf).parts)


class CountsNothing(BuiltinSession):
    """Counts of experts that are all zero."""

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """As the builtin session."""
        return replace(super().prefill(tokens), counters=dict.fromkeys(EXPERT_COUNTERS, 0))

    def round(self, drafts: Sequence[int]) -> Outcome:
        """As the builtin session."""
        return replace(super().round(drafts), counters=dict.fromkeys(EXPERT_COUNTERS, 0))


class ClaimsExperts(IgnoresExperts):
    """Deaf, and counts nothing."""

    session = CountsNothing
