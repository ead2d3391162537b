"""Verdicts: what one case may conclude, and the exceptions by which it says so.

Only ``pass`` raises the score. A missing capability is ``unsupported`` and counted; a case whose
witness was not met is ``inconclusive``: it proved nothing, whatever it compared.

This module, ``case`` and ``exactness`` are imported by the side a runtime runs in: they need the
standard library of Python 3.10 and mlx, no more.
"""

from enum import Enum


class Verdict(str, Enum):
    """The outcome of one case on one cell."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"
    NEAR_TIE = "near-tie"
    XFAIL = "xfail"
    XPASS = "xpass"

    def __str__(self) -> str:
        return self.value


class _Reasoned(Exception):
    """An exception that carries the reason it was raised for."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unsupported(_Reasoned):
    """The runtime does not have a capability that the case needs."""


class Inconclusive(_Reasoned):
    """What had to happen for the verdict to count did not happen."""


class NearTie(_Reasoned):
    """A stream left K=0's where two logits are proven to tie; never a pass.

    Attributes:
        ladder: for each K tried, where its stream first diverges; None where it does not.
        margin: distance between the two candidates' K=0 logits.
        index: of the emitted token; None where it is not told.
        ulps: the margin in units in the last place, rounded up.
    """

    def __init__(
        self,
        reason: str,
        ladder: tuple[tuple[int, int | None], ...],
        margin: float,
        index: int | None = None,
        ulps: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.ladder = ladder
        self.margin = margin
        self.index = index
        self.ulps = ulps
