"""A runtime that is right and rounds differently gets near-ties, and states are still judged."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, NearTie, Oracles, Witness
from mtp_conformance.protocol import Runtime
from tests.fakes.rounds_differently import RoundsDifferently

Make = Callable[[Runtime], Oracles]


def test_divergence_at_a_tie_is_a_near_tie(oracles_of: Make) -> None:
    """Two ULPs apart, at one place for every K, states right past it: a proven near-tie."""
    cell = Cell("gdn-mtp2", "tape", 3, None, "bfloat16", 3)
    with pytest.raises(NearTie, match=r"2 ULP.*K=1 at 6, K=2 at 6, K=3 at 6"):
        stream_case(oracles_of(RoundsDifferently()), cell, Witness())


def test_probe_finds_the_model_not_row_exact(oracles_of: Make) -> None:
    """The probe of the loaded model says so, and of the builtin runtime the opposite."""
    oracles = oracles_of(RoundsDifferently())
    assert not oracles.exact(oracles.group(Cell("gdn", dtype="bfloat16", prompt_length=5)).key, 3)


def test_state_claim_holds_without_row_exactness(oracles_of: Make) -> None:
    """The state case compares runs of the same shape, and passes."""
    witness = Witness()
    cell = Cell("gdn", "tape", 3, 1, "bfloat16", 5)
    state_case(oracles_of(RoundsDifferently()), cell, witness)
    assert witness.as_dict()["compared"] > 0
