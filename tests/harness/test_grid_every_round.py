"""The default profile runs every model, strategy, K and accept count."""

from itertools import product

from mtp_conformance.grid import MODELS, STRATEGIES, one_round


def test_every_round_once() -> None:
    """Every zoo model x strategy x K in 1..8 x accepted in 0..K is a cell, once."""
    due = [
        (m, s, k, a) for m, s, k in product(MODELS, STRATEGIES, range(1, 9)) for a in range(k + 1)
    ]
    cells = [(c.model, c.strategy, c.k, c.accepted) for c in one_round("default")]
    assert sorted(c for c in cells if c[0] in MODELS) == sorted(due)
