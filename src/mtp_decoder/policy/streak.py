"""Pause drafting after a streak of rounds that accepted nothing, then try again.

A round whose drafts all fail costs a verify pass and a rewind for the one token that plain
decoding gives. A streak of them says that this stretch of text is not predicted; a pause ends by
itself, because a stretch of text does.
"""

from __future__ import annotations

from mtp_decoder.errors import DecoderError
from mtp_decoder.policy.cost import RoundCost


class StreakFallback:
    """Plain decoding for a while after rounds without an accept.

    Args:
        streak: rounds in a row that accept nothing before a pause.
        pause: rounds without drafts; then one round drafts, and pauses again if it fails too.

    Raises:
        DecoderError: one of them is not positive.
    """

    def __init__(self, streak: int = 8, pause: int = 16) -> None:
        if streak < 1 or pause < 1:
            raise DecoderError(f"streak and pause are at least 1, not {streak} and {pause}")
        self._streak, self._pause = streak, pause
        self._failed = self._left = 0

    def begin(self) -> None:
        """A request starts with drafts, whatever the last one was like."""
        self._failed = self._left = 0

    def depth(self, most: int) -> int:
        """All, or none during a pause."""
        return 0 if self._left else most

    def observe(self, cost: RoundCost) -> None:
        """Count failures in a row, and the rounds of a pause."""
        if not cost.drafted:
            self._left = max(0, self._left - 1)
            return
        self._failed = 0 if cost.accepted else self._failed + 1
        if self._failed >= self._streak:
            self._left = self._pause
