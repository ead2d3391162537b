"""As many drafts as there may be, always."""

from __future__ import annotations

from mtp_decoder.policy.cost import RoundCost


class Fixed:
    """K as the caller gave it."""

    def begin(self) -> None:
        """Nothing is remembered."""

    def depth(self, most: int) -> int:
        """All of them."""
        return most

    def observe(self, cost: RoundCost) -> None:
        """Nothing is remembered."""
        del cost
