"""Logits that differ do not buy a runtime out of the state claim."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.protocol import Runtime
from tests.fakes.junk_logits import HairSession, JunkLogits

CELL = Cell("gdn", "tape", 3, 1, "float32", 5)
Make = Callable[[Runtime], Oracles]


def test_more_than_rounding_loosens_nothing(oracles_of: Make) -> None:
    """Logits apart by 50 are no other kernel: bits against K=0 are still demanded."""
    with pytest.raises(StateDiffers, match="never-rejected run"):
        state_case(oracles_of(JunkLogits()), CELL, Witness())


def test_rounding_excuses_no_more_than_rounding(oracles_of: Make) -> None:
    """With logits a hair apart, a state off by a thousandth is further than passes round."""
    runtime = JunkLogits()
    runtime.session = HairSession
    with pytest.raises(StateDiffers, match="passes without a reject differ by rounding"):
        state_case(oracles_of(runtime), CELL, Witness())
