"""After an error it goes on with the caches as the error left them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.injecting import InjectedFailure
from mtp_conformance.protocol import Options, Outcome


class HeedlessSession(BuiltinSession):
    """Undoes nothing."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Leave a failed round where it was."""
        try:
            return self._round(drafts)
        except InjectedFailure:
            vars(self.session)["_open"] = None
            raise

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Leave a token of a failed prompt in the caches."""
        try:
            return super().prefill(tokens)
        except InjectedFailure:
            super().prefill(tokens[:1])
            self.session.history = []
            raise


class SilentSession(BuiltinSession):
    """Hides a failed round, and emits other tokens."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Make the failed round again, with every token plus one."""
        try:
            return super().round(drafts)
        except InjectedFailure:
            outcome = super().round(drafts)
        assert outcome.logits is not None
        tokens = tuple((token + 1) % outcome.logits.shape[-1] for token in outcome.tokens)
        return replace(outcome, tokens=tokens, logits=mx.roll(outcome.logits, 1, -1))


class LatchedRuntime(BuiltinRuntime):
    """Refuses every session after the first error in one."""

    failed = False

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        return LatchedSession(*super().open(model, checkpoint, options).parts)


class LatchedSession(BuiltinSession):
    """Sets and heeds a latch that belongs to nobody."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Fail for good once an evaluation failed."""
        if LatchedRuntime.failed:
            raise RuntimeError("the runtime failed earlier")
        try:
            return super().round(drafts)
        except InjectedFailure:
            LatchedRuntime.failed = True
            raise


class IgnoresFailures(BuiltinRuntime):
    """The builtin runtime without a way back."""

    def __init__(self, session: type[BuiltinSession] = HeedlessSession) -> None:
        self.session = session

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        return self.session(*super().open(model, checkpoint, options).parts)
