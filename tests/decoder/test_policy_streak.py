"""The pause after a streak of rounds that accepted nothing."""

import pytest

from mtp_decoder import DecoderError, RoundCost, StreakFallback


def _play(policy: StreakFallback, accepts: list[int], k: int = 3) -> list[int]:
    chosen: list[int] = []
    for possible in accepts:
        depth = policy.depth(k)
        policy.observe(RoundCost(depth, min(depth, possible), 1.0, 1.0, 1.0))
        chosen.append(depth)
    return chosen


def test_pauses_and_tries_again() -> None:
    """Eight failures pause; one round tries; its failure pauses again, its success does not."""
    policy = StreakFallback(streak=8, pause=4)
    assert _play(policy, [0] * 18) == [3] * 8 + [0] * 4 + [3] + [0] * 4 + [3]
    assert _play(policy, [2] * 8) == [0] * 4 + [3] * 4


def test_a_streak_is_in_a_row() -> None:
    """One accept among failures starts the count anew."""
    assert _play(StreakFallback(streak=3), [0, 0, 1] * 6) == [3] * 18


def test_another_request_starts_afresh() -> None:
    """A pause ends with its request."""
    policy = StreakFallback(streak=2)
    _play(policy, [0] * 4)
    policy.begin()
    assert policy.depth(3) == 3


def test_refuses_nonsense() -> None:
    """A streak of none would never draft."""
    with pytest.raises(DecoderError, match="at least 1"):
        StreakFallback(streak=0)
