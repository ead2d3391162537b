"""The analytic limit: expected tokens a round over what its passes cost in plain steps."""

import pytest

from mtp_decoder.bench.limit import speed_up_limit, tokens_a_round


def test_tokens_a_round() -> None:
    """One token comes of itself, draft j with the share of rounds that accepted so many."""
    assert tokens_a_round([50, 50], [40, 10]) == pytest.approx(1 + 0.8 + 0.2)
    assert tokens_a_round([50, 25], [40, 10]) == pytest.approx(1 + 0.8 + 0.4)
    assert tokens_a_round([], []) == 1


@pytest.mark.parametrize("alpha", [0.3, 0.8])
@pytest.mark.parametrize("k", [1, 4])
def test_is_the_theorem(alpha: float, k: int) -> None:
    """With independent accepts and passes of one cost it is theorem 3.8 of Leviathan et al."""
    c = 0.1
    rounds = 10**9
    accepted = [round(rounds * alpha**j) for j in range(1, k + 1)]
    tokens = tokens_a_round([rounds] * k, accepted)
    theorem = (1 - alpha ** (k + 1)) / ((1 - alpha) * (k * c + 1))
    assert speed_up_limit(tokens, (k * c + 1) * 2.0, 2.0) == pytest.approx(theorem, rel=1e-6)
