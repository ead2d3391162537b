"""Emits the token after the right one, in every round."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Options, Outcome


class AlwaysWrongSession(BuiltinSession):
    """Wrong tokens where drafts were given; plain steps are right."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Emit every token plus one."""
        outcome = super().round(drafts)
        if not drafts:
            return outcome
        assert outcome.logits is not None
        tokens = tuple((token + 1) % outcome.logits.shape[-1] for token in outcome.tokens)
        logits = mx.roll(outcome.logits, 1, -1)
        for row, token in enumerate(tokens):  # equal maxima may have moved past the end
            logits[row, token] += 1
        return replace(outcome, tokens=tokens, logits=logits)


class AlwaysWrong(BuiltinRuntime):
    """The builtin runtime with wrong tokens."""

    def open(self, model: str, checkpoint: Path, options: Options) -> AlwaysWrongSession:
        """As the builtin runtime."""
        session = super().open(model, checkpoint, options)
        return AlwaysWrongSession(*session.parts)
