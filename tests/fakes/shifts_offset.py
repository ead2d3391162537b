"""After a reject its state says one token too many; tokens and logits are right."""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options, Outcome


class ShiftsOffsetSession(BuiltinSession):
    """Offsets one ahead from the first reject on."""

    ahead = 0

    def round(self, drafts: Sequence[int]) -> Outcome:
        """As the builtin session."""
        outcome = super().round(drafts)
        self.ahead = int(self.ahead or outcome.accepted < len(drafts))
        return outcome

    def state(self) -> dict[str, mx.array]:
        """Every target offset too large by one."""
        state = super().state()
        wrong = [name for name in state if name.endswith(".offset") and name[:4] != "head"]
        return {**state, **{name: state[name] + self.ahead for name in wrong}}


class ShiftsOffset(BuiltinRuntime):
    """The builtin runtime with such sessions."""

    def open(self, model: str, checkpoint: Path, options: Options) -> ShiftsOffsetSession:
        """As the builtin runtime."""
        return ShiftsOffsetSession(*super().open(model, checkpoint, options).parts)
