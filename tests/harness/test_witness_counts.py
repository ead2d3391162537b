"""Witness: what must have happened for a verdict to count."""

import pytest

from mtp_conformance.case import Witness
from mtp_conformance.verdict import Inconclusive


def test_counts_add_up() -> None:
    """Counts of any name are summed over calls."""
    witness = Witness()
    witness.add(drafted=3, accepted=1, rejected=2, compared=5, wraps=1)
    witness.add(drafted=1, compared=1, wraps=2)
    counts = {"drafted": 4, "accepted": 1, "rejected": 2, "compared": 6, "wraps": 3}
    assert witness.as_dict() == counts


def test_an_unmet_minimum_is_inconclusive() -> None:
    """A count below its minimum proves nothing, and the message says which."""
    witness = Witness()
    witness.add(drafted=3)
    with pytest.raises(Inconclusive, match=r"^proves nothing: rejected 0 of at least 1$"):
        witness.require(drafted=3, rejected=1)


def test_met_minimums_say_nothing() -> None:
    """Counts that reach their minimums raise nothing."""
    witness = Witness()
    witness.add(rejected=1)
    witness.require(rejected=1)
