"""Plain steps, the next one under way while the last one's token is handed out.

A step needs the token before it, but not its value: the graph of the next step is built on the
token that is still being computed, and submitted. So building and computing overlap, as in mlx-lm's
`generate_step`. What was submitted for a token that is then not wanted is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import mlx.core as mx

from mtp_decoder.rewind import Rewind
from mtp_decoder.rules import Told, normalise
from mtp_decoder.state import arrays_of
from mtp_decoder.target import Target
from mtp_decoder.window import Window

_ALL_EVERY = 16
"""Positions after which everything in the caches is computed; to ask every time costs a tenth."""


class Step(NamedTuple):
    """A submitted step: its token [1], logits and log-probabilities [1, V]."""

    token: mx.array
    logits: mx.array
    logprobs: mx.array


class Ahead:
    """Steps of one target over its caches, which hold what was submitted, too.

    Args:
        target: the model.
        caches: its own, every one of which can be rewound.
    """

    def __init__(self, target: Target, caches: Sequence[Any]) -> None:
        self._target = target
        self._caches = caches
        self._windows: list[Window] = []
        self._next: Step | None = None

    @property
    def under_way(self) -> bool:
        """Whether a step was begun whose token was not handed out."""
        return bool(self._windows)

    def step(self, anchor: int, position: int, rule: Told, *, more: bool) -> tuple[int, Step]:
        """The token after the anchor.

        If anything fails, `undo` puts the caches back to before this call.

        Args:
            anchor: the last token, not yet in the caches or submitted by the step before.
            position: in the sequence, of the token after it.
            rule: chooses it.
            more: whether to submit the step after this one.
        """
        step = self._next or self._submit(mx.array([[anchor]]), position, rule)
        self._next = self._submit(step.token[None], position + 1, rule) if more else None
        token = cast("int", step.token.item())
        if not more:
            mx.eval(arrays_of(self._caches))
            mx.synchronize()  # for the log-probabilities, which neither line above waits for
        self._windows.pop(0)
        return token, step

    def undo(self) -> None:
        """Leave the caches as before the first step whose token was not handed out."""
        if not self._windows:
            return
        first, self._windows, self._next = self._windows[0], [], None
        mx.synchronize()
        first.abandon()
        mx.eval(arrays_of(self._caches))

    def _submit(self, token: mx.array, position: int, rule: Told) -> Step:
        window = Window(self._target, self._caches, Rewind.REPLAY)
        self._windows.append(window)  # before it runs: a pass that fails half-way is undone, too
        logits = self._target.logits(window.run(token))[0]
        step = Step(rule.tell(logits, position), logits, normalise(logits))
        # The next step needs nearly all that the caches hold, and computes it. What no step reads
        # for long, such as index keys while every block is attended to, must not pile up.
        due = [] if position % _ALL_EVERY else arrays_of(self._caches)
        mx.async_eval(step.token, step.logprobs, due)
        return step
