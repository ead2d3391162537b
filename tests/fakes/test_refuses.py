"""Refusing to draft is right; being another decoder afterwards is not."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_refusal import test_refusal as refusal_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.near_tie import StreamDiffers
from mtp_conformance.protocol import Runtime
from tests.fakes.refuses import BrokenAfter, Refuses, WrongInstead

CELL = Cell("gdn", "tape", 2, None, "float32", 5)
Make = Callable[[Runtime], Oracles]


def test_refusal_passes(oracles_of: Make) -> None:
    """The refusal is counted and K=0 compared with K=0 before it."""
    witness = Witness()
    refusal_case(oracles_of(Refuses()), CELL, witness)
    assert witness.as_dict()["refused"] == 1
    assert witness.as_dict()["compared"] > 0


def test_other_tokens_after_a_refusal_fail(oracles_of: Make) -> None:
    """A refusal that leaves something behind is caught, and the ladder has only K=0 to try."""
    with pytest.raises(AssertionError, match="emitted token 0"):
        refusal_case(oracles_of(Refuses(BrokenAfter)), CELL, Witness())


def test_wrong_tokens_instead_of_a_refusal_fail(oracles_of: Make) -> None:
    """A runtime that drafts all the same is held to K=0."""
    with pytest.raises(StreamDiffers):
        refusal_case(oracles_of(Refuses(WrongInstead)), CELL, Witness())
