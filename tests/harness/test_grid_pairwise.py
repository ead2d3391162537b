"""In the default profile any two axes meet in every pair of values."""

from itertools import combinations, product

import pytest

from mtp_conformance.grid import DTYPES, MODELS, PROMPT_LENGTHS, STRATEGIES, one_round

AXES = {
    "model": MODELS,
    "strategy": STRATEGIES,
    "k": range(1, 9),
    "accepted": range(9),
    "dtype": DTYPES,
    "prompt_length": PROMPT_LENGTHS,
}


@pytest.mark.parametrize(("first", "second"), list(combinations(AXES, 2)))
def test_every_pair_of_values(first: str, second: str) -> None:
    """Every pair of values that can occur together does."""
    found = {(getattr(c, first), getattr(c, second)) for c in one_round("default")}
    due = set(product(AXES[first], AXES[second]))
    if (first, second) == ("k", "accepted"):
        due = {(k, accepted) for k, accepted in due if accepted <= k}
    assert due <= found
