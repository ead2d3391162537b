"""Profile `peers`, and other runtimes' strategies in place of the builtin decoder's."""

import pytest

from mtp_conformance.case import Cell
from mtp_conformance.grid import (
    AGREEING_MODELS,
    CLASS_MODELS,
    MODELS,
    PEER_DEPTH,
    PEER_MODELS,
    STRATEGIES,
    one_round,
    spread,
    with_strategies,
    within_depth,
)


def test_one_round_has_every_model_strategy_and_accept_count() -> None:
    """Families others know, every strategy, K up to three and every a."""
    found = {(c.model, c.strategy, c.k, c.accepted) for c in one_round("peers")}
    rounds = [(k, a) for k in range(1, PEER_DEPTH + 1) for a in range(k + 1)]
    assert found == {(m, s, k, a) for m in PEER_MODELS for s in STRATEGIES for k, a in rounds}


def test_other_cases_keep_to_the_models_and_depths() -> None:
    """A case's models that others know, one of mlx-lm's classes by its plain name."""
    cells = spread(models=(*MODELS, *CLASS_MODELS, *AGREEING_MODELS), depths=(1, 4, 8))("peers")
    assert {cell.model for cell in cells} == set(PEER_MODELS)
    assert {cell.k for cell in cells} == {1, PEER_DEPTH}
    assert {cell.strategy for cell in cells} == set(STRATEGIES)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_case_is_run_at_the_deepest_k_a_runtime_has(most: int) -> None:
    """Where all cells of a model are deeper K is lowered; else deep cells stay as they are."""
    deep = within_depth([Cell("gdn", k=4), Cell("gdn", k=5), Cell("attn", k=1)], most)
    assert [(c.model, c.k) for c in deep] == [("gdn", most), ("attn", 1)]
    mixed = [Cell("gdn", k=1, accepted=0), Cell("gdn", k=5, accepted=5)]
    assert within_depth(mixed, most) == mixed
    rounds = within_depth([Cell("gdn", k=4, accepted=a) for a in range(5)], most)
    assert [c.accepted for c in rounds] == list(range(most + 1))


def test_depth_leaves_cells_without_k_alone() -> None:
    """A case without the axis has nothing to lower."""
    assert within_depth([Cell("gdn")], 1) == [Cell("gdn")]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
def test_every_strategy_of_a_runtime_is_run(count: int) -> None:
    """However many there are, each takes part, and no cell runs twice."""
    given = [f"own-{n}" for n in range(count)]
    cells = with_strategies([Cell("gdn", s, k) for s in STRATEGIES for k in (1, 2)], given)
    assert {cell.strategy for cell in cells} == set(given)
    assert len({cell.id for cell in cells}) == len(cells) == 2 * count
