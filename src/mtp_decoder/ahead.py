"""Plain steps, the next one under way while the last one's token is handed out.

A step needs the token before it, but not its value: the graph of the next step is built on the
token that is still being computed, and submitted. So building and computing overlap, as in mlx-lm's
`generate_step`. What was submitted for a token that is then not wanted is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx

from mtp_decoder.rewind import Rewind
from mtp_decoder.rules import Told, normalise
from mtp_decoder.state import arrays_of
from mtp_decoder.target import Target
from mtp_decoder.window import Window


@dataclass(frozen=True)
class Step:
    """A submitted step: its token [1], logits and log-probabilities [1, V], and the way back."""

    token: mx.array
    logits: mx.array
    logprobs: mx.array
    window: Window


class Ahead:
    """Steps of one target over its caches, which hold what was submitted, too.

    Args:
        target: the model.
        caches: its own, every one of which can be rewound.
    """

    def __init__(self, target: Target, caches: Sequence[Any]) -> None:
        self._target = target
        self._caches = caches
        self._submitted: list[Step] = []

    def step(self, anchor: int, position: int, rule: Told, *, more: bool) -> tuple[int, Step]:
        """The token after the anchor.

        If anything fails, `undo` puts the caches back to before this call.

        Args:
            anchor: the last token, not yet in the caches or submitted by the step before.
            position: in the sequence, of the token after it.
            rule: chooses it.
            more: whether to submit the step after this one.
        """
        if not self._submitted:
            self._submit(mx.array([[anchor]]), position, rule)
        step = self._submitted[0]
        if more:
            self._submit(step.token[None], position + 1, rule)
        token = cast("int", step.token.item())
        self._submitted.pop(0)
        return token, step

    def undo(self) -> None:
        """Leave the caches as before the first step whose token was not handed out."""
        if not self._submitted:
            return
        first = self._submitted[0]
        self._submitted = []
        mx.synchronize()
        first.window.abandon()
        mx.eval(arrays_of(self._caches))

    def _submit(self, token: mx.array, position: int, rule: Told) -> None:
        window = Window(self._target, self._caches, Rewind.REPLAY)
        # Known before it runs: a pass that fails half-way is undone, too.
        blank = mx.zeros(0)
        self._submitted.append(Step(blank, blank, blank, window))
        logits = self._target.logits(window.run(token))[0]
        step = Step(rule.tell(logits, position), logits, normalise(logits), window)
        self._submitted[-1] = step
        mx.async_eval(step.token, step.logprobs, arrays_of(self._caches))
