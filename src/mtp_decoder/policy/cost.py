"""What a policy is asked and told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RoundCost:
    """One finished round.

    Attributes:
        drafted: K, drafts that were verified.
        accepted: a, how many of them stood.
        draft_seconds: wall time of drafting.
        verify_seconds: wall time of the verify pass and of accepting.
        rewind_seconds: wall time of the rewind, or of what settles a round with nothing to undo.
    """

    drafted: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    rewind_seconds: float


class DepthPolicy(Protocol):
    """Chooses K for every round of a request."""

    def begin(self) -> None:
        """Start another request. What was seen of the last one's text says nothing of it."""
        ...

    def depth(self, most: int) -> int:
        """K for the next round, 0 to `most`, which is what was asked for or the budget leaves."""
        ...

    def observe(self, cost: RoundCost) -> None:
        """Take note of a round."""
        ...
