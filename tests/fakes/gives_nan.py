"""Its logits hold NaN once drafts are verified."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options, Outcome


class NanSession(BuiltinSession):
    """NaN in the last row of every verify pass."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Spoil one row."""
        outcome = super().round(drafts)
        assert outcome.logits is not None
        spoiled = mx.array(outcome.logits)
        spoiled[-1, 0] = mx.nan
        return replace(outcome, logits=spoiled if drafts else outcome.logits)


class GivesNan(BuiltinRuntime):
    """The builtin runtime with NaN."""

    def open(self, model: str, checkpoint: Path, options: Options) -> NanSession:
        """As the builtin runtime."""
        return NanSession(*super().open(model, checkpoint, options).parts)
