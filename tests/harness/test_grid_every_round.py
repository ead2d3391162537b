"""The default profile runs every model, strategy, K and accept count."""

from itertools import product

from mtp_conformance.grid import MODELS, STRATEGIES, one_round, one_round_in_turn


def test_every_round_once() -> None:
    """Every zoo model x strategy x K in 1..8 x accepted in 0..K is a cell, once."""
    due = [
        (m, s, k, a) for m, s, k in product(MODELS, STRATEGIES, range(1, 9)) for a in range(k + 1)
    ]
    cells = [(c.model, c.strategy, c.k, c.accepted) for c in one_round("default")]
    assert sorted(c for c in cells if c[0] in MODELS) == sorted(due)


def test_in_turn_every_model_has_every_round_and_every_strategy() -> None:
    """One strategy a round by default, and all of them over the rounds; else all."""
    cells = [cell for cell in one_round_in_turn("default") if cell.model in MODELS]
    rounds = [(k, accepted) for k in range(1, 9) for accepted in range(k + 1)]
    found = [(cell.model, cell.k, cell.accepted) for cell in cells]
    assert sorted(found) == sorted((model, *round_) for model in MODELS for round_ in rounds)
    assert {(c.model, c.strategy) for c in cells} == {(m, s) for m in MODELS for s in STRATEGIES}
    for profile in ("full", "smoke", "peers"):
        assert list(one_round_in_turn(profile)) == list(one_round(profile))
