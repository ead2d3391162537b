"""Runtimes that are wrong, or right and rounding otherwise, on a checkpoint folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from mtp_conformance.adapters.builtin import (
    BuiltinSession,
    FolderRuntime,
    session_of,
    specified,
)
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from tests.fakes.rounds_differently import with_kernel

_CALLS = count(1)


class OtherRounding(FolderRuntime):
    """The reference classes, with another kernel for more than one row in the attention layer."""

    layer = 2

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime, prefilled one token a pass so that a prompt is no block."""
        del model
        target, head = specified(checkpoint)
        target = with_kernel(target, self.layer)
        options = replace(options, prefill_step_size=1)
        return BuiltinSession(session_of(target, head, options), target, head, options, checkpoint)


class IgnoresRowExact(OtherRounding):
    """Offers a row-exact mode and has none."""

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As ever."""
        return super().open(model, checkpoint, replace(options, row_exact=False))


class DriftingSession(BuiltinSession):
    """Logits that drift from call to call."""

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Add a number never used before to all logits."""
        outcome = super().round(drafts)
        assert outcome.logits is not None
        return replace(outcome, logits=outcome.logits + 0.001 * next(_CALLS))


class Drifting(FolderRuntime):
    """A decoder that does not repeat itself."""

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        return DriftingSession(*super().open(model, checkpoint, options).parts)


class StreamAlone(FolderRuntime):
    """Emits tokens and shows nothing else."""

    def describe(self) -> Description:
        """Only the first level."""
        offered = frozenset({Capability.STREAM})
        return replace(super().describe(), capabilities=offered, max_draft_tokens=2)


def ignores_row_exact() -> IgnoresRowExact:
    """The factory for `--runtime`."""
    return IgnoresRowExact()


def drifting() -> Drifting:
    """The factory for `--runtime`."""
    return Drifting()


def stream_alone() -> StreamAlone:
    """The factory for `--runtime`."""
    return StreamAlone()


def other_rounding() -> OtherRounding:
    """The factory for `--runtime`."""
    return OtherRounding()
