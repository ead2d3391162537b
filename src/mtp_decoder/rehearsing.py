"""What a depth policy would do: a request played by script, without a model, by a fake clock.

The loop that asks the policy and tells it what a round cost is `emit`'s own; only the session
under it is scripted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import mlx.core as mx

from mtp_decoder.counters import Counters
from mtp_decoder.generate import emit
from mtp_decoder.policy import DepthPolicy
from mtp_decoder.session import Round


class Scripted(Protocol):
    """A round as it will come out.

    `stand` drafts will stand if there are as many. A draft takes `draft_seconds`, the verify pass
    of K drafts `verify_seconds[K]`, the rewind `rewind_seconds` if a draft was rejected.
    """

    stand: int
    draft_seconds: float
    verify_seconds: Sequence[float]
    rewind_seconds: float


def rehearse(policy: DepthPolicy, rounds: Sequence[Any], num_draft_tokens: int) -> list[int]:
    """K of every round of a request, as the policy chooses them.

    Args:
        policy: may have seen other requests.
        rounds: `Scripted` ones.
        num_draft_tokens: most drafts a round.
    """
    if not rounds:
        return []
    session = _ScriptedSession(rounds)
    emitted = emit(cast("Any", session), [0], num_draft_tokens=num_draft_tokens, policy=policy)
    while len(session.chosen) < len(rounds):
        next(emitted)
    emitted.close()
    return session.chosen


class _ScriptedSession:
    """What `emit` needs of a session; its clock goes on as the script says."""

    def __init__(self, rounds: Sequence[Scripted]) -> None:
        self._rounds = rounds
        self._now = 0.0
        self.chosen: list[int] = []
        self.history = [0]
        self.counters = Counters(clock=lambda: self._now)

    def prefill(self, prompt: Sequence[int]) -> Round:
        """One token."""
        del prompt
        return self._outcome(0, 0)

    def round(self, num_draft_tokens: int, *, drafts: None = None, more: bool = False) -> Round:
        """The next round of the script."""
        del drafts, more
        script, k = self._rounds[len(self.chosen)], num_draft_tokens
        accepted = min(k, script.stand)
        for phase, seconds in (
            ("draft", k * script.draft_seconds),
            ("verify", script.verify_seconds[k]),
            ("rewind", script.rewind_seconds if accepted < k else 0.0),
        ):
            with self.counters.phase(phase):
                self._now += seconds
        self.chosen.append(k)
        return self._outcome(k, accepted)

    def land(self) -> None:
        """Nothing is ever under way."""

    def cut(self, emitted: int) -> None:
        """Nothing is cached."""

    def _outcome(self, k: int, accepted: int) -> Round:
        tokens = (0,) * (accepted + 1)
        self.history += tokens
        return Round((0,) * k, accepted, tokens, mx.zeros((k + 1, 1)), mx.zeros((accepted + 1, 1)))
