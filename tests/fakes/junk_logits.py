"""Hides a rollback fault behind logits that no rounding explains."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options, Outcome


class JunkSession(BuiltinSession):
    """After a reject every recurrent array is off by a thousandth; logits are moved by 50."""

    moved = 50.0
    off = 1.001
    rejected = False

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Move the logits of a verify pass, and spoil the state where something was rejected."""
        outcome = super().round(drafts)
        assert outcome.logits is not None
        self.rejected = self.rejected or outcome.accepted < len(drafts)
        if drafts and self.moved:
            outcome = replace(outcome, logits=outcome.logits + mx.array(self.moved))
        return outcome

    def state(self) -> dict[str, mx.array]:
        """The state, spoiled."""
        off = self.off if self.rejected else 1.0
        found = super().state().items()
        return {name: a * off if name.endswith("recurrent") else a for name, a in found}


class HairSession(JunkSession):
    """The same, with logits moved by less than rounding could."""

    moved = 2.0**-12


class JunkLogits(BuiltinRuntime):
    """The builtin runtime with a fault and an excuse for it."""

    session: type[JunkSession] = JunkSession

    def open(self, model: str, checkpoint: Path, options: Options) -> JunkSession:
        """As the builtin runtime."""
        return self.session(*super().open(model, checkpoint, options).parts)
