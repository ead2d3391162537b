"""A runtime that drops what it is asked for in sampling passes no case of it."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.sample.test_law import test_own_drafts as law_case
from conformance.sample.test_seed import test_early_or_late as seed_case
from conformance.sample.test_states import test_mask as mask_case
from conformance.sample.test_states import test_penalty as penalty_case
from conformance.sample.test_stream import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.protocol import Runtime
from tests.fakes.ignores_options import IgnoresOptions

MakeOracles = Callable[[Runtime], Oracles]
CELL = Cell("gdn-agree", "tape", 3, None, "float32", 4)
COLD = Cell("gdn-agree", "tape", 0, None, "float32", 4)
HOT = (("acceptance", "rejection"), ("gaps", "2"))
LAW = Cell("gdn-agree", "tape", 1, None, "float32", 5, HOT)


@pytest.mark.parametrize(
    ("likes", "said"),
    [
        ({"temperature": 0.3}, "chi-square is .*, at most .* is chance: "),
        ({"top_k": 0}, r"emitted \(.*\), which top_k=4 forbids"),
        ({"seed": 1}, "chi-square"),
    ],
)
def test_the_law(oracles_of: MakeOracles, likes: dict[str, Any], said: str) -> None:
    """Another temperature, no cut, or one seed for all is another law."""
    with pytest.raises(AssertionError, match=said):
        law_case(oracles_of(IgnoresOptions(**likes)), LAW, Witness())


def test_rejection_where_a_match_is_asked_for(oracles_of: MakeOracles) -> None:
    """Rejection sampling keeps the law and not the tokens."""
    with pytest.raises(AssertionError, match="K=0 with the same seed emits"):
        stream_case(oracles_of(IgnoresOptions(acceptance="rejection")), CELL, Witness())


def test_a_seed_without_effect(oracles_of: MakeOracles) -> None:
    """Where every seed gives the same tokens, that is said."""
    with pytest.raises(AssertionError, match="four seeds gave the same 10 tokens"):
        seed_case(oracles_of(IgnoresOptions(seed=1)), COLD, Witness())


def test_a_penalty_without_effect(oracles_of: MakeOracles) -> None:
    """Where the penalty changes no token nothing is proven."""
    with pytest.raises(Inconclusive, match="bites 0 of at least 1"):
        penalty_case(oracles_of(IgnoresOptions(repetition_penalty=1.0)), CELL, Witness())


def test_a_mask_without_effect(oracles_of: MakeOracles) -> None:
    """A token that was not allowed is named."""
    with pytest.raises(AssertionError, match=r"token \d+ is \d+, which is not allowed"):
        mask_case(oracles_of(IgnoresOptions(allowed_tokens=())), CELL, Witness())
