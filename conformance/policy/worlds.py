"""What rounds cost and how many drafts stand, for a policy to find out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp_conformance import Capability, Cell, Oracles
from mtp_conformance.checked import CheckedSession
from mtp_conformance.protocol import Trial


@dataclass(frozen=True)
class World:
    """Seconds of a draft, of a pass, of every further row in it, and of a rewind."""

    draft: float
    one_pass: float
    row: float
    rewind: float

    def trials(self, stands: Sequence[int], k: int) -> list[Trial]:
        """Rounds in which so many drafts stand."""
        passes = tuple(self.one_pass + self.row * drafts for drafts in range(k + 1))
        return [Trial(stand, self.draft, passes, self.rewind) for stand in stands]

    def seconds(self, chosen: int, stand: int) -> float:
        """Of one round."""
        rewind = self.rewind if stand < chosen else 0.0
        return chosen * self.draft + self.one_pass + self.row * chosen + rewind

    def rate(self, chosen: Sequence[int], stands: Sequence[int]) -> float:
        """Tokens a second of rounds with these depths."""
        pairs = list(zip(chosen, stands, strict=True))
        tokens = sum(1 + min(k, stand) for k, stand in pairs)
        return tokens / sum(self.seconds(k, stand) for k, stand in pairs)


WORLDS = {
    "memory-bound": World(draft=0.05, one_pass=1.0, row=0.02, rewind=0.02),
    "dear-rows": World(draft=0.05, one_pass=1.0, row=0.6, rewind=0.02),
    "dear-drafts": World(draft=0.7, one_pass=1.0, row=0.02, rewind=0.02),
    "dear-rewind": World(draft=0.05, one_pass=1.0, row=0.02, rewind=6.0),
}
"""What is dear differs: nothing but the pass, further rows, drafts, or a rewind by replay."""


def asked(oracles: Oracles, cell: Cell) -> CheckedSession:
    """A session with the cell's policy.

    Raises:
        Unsupported: the runtime has no such policy.
    """
    oracles.need(Capability.POLICY)
    return oracles.group(cell).open(oracles.with_policy(cell))
