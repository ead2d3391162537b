"""How deep to draft, round by round: one policy a file.

`fixed` always drafts as many as it may, `streak` pauses after rounds that accepted nothing, `rate`
goes by measured cost and recent accepts. None of them can change a token: K is no part of what
is emitted. A policy object may serve one request after another.
"""

from __future__ import annotations

from enum import Enum

from mtp_decoder.naming import member_of
from mtp_decoder.policy.cost import DepthPolicy, RoundCost
from mtp_decoder.policy.fixed import Fixed
from mtp_decoder.policy.rate import RateAware
from mtp_decoder.policy.streak import StreakFallback

__all__ = [
    "Depth",
    "DepthPolicy",
    "Fixed",
    "RateAware",
    "RoundCost",
    "StreakFallback",
    "make_policy",
]


class Depth(str, Enum):
    """Policies by name."""

    FIXED = "fixed"
    STREAK = "streak"
    RATE = "rate"


def make_policy(policy: DepthPolicy | Depth | str) -> DepthPolicy:
    """A policy of that name with its own defaults, or the given one.

    Raises:
        DecoderError: no policy has this name; the message lists those there are.
    """
    if not isinstance(policy, str):
        return policy
    name = member_of(Depth, policy, "depth_policy")
    made = {Depth.FIXED: Fixed, Depth.STREAK: StreakFallback, Depth.RATE: RateAware}
    return made[name]()
