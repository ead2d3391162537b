"""Experts of a row-exact run: its rows may ask for them one by one, and for none beside."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.experts.test_counts import test_counts_are_exact as counts_are_exact
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_decoder.experts.store import ExpertStore

CELL = Cell("gdn-moe", "tape", None, None, "float32", 1)


@pytest.fixture
def oracles(tmp_path: Path) -> Oracles:
    """The builtin decoder, told to decode row-exact."""
    materials = builtin.zoo_materials(tmp_path)
    return Oracles(builtin.make_runtime(), materials, row_exact=True)


def test_one_by_one(oracles: Oracles) -> None:
    """What rows ask for one after the other is counted as often as they ask."""
    witness = Witness()
    counts_are_exact(oracles, CELL, witness)
    assert witness.as_dict()["reads"]


def test_one_too_many(oracles: Oracles, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expert that no row chose is noticed."""
    acquire = ExpertStore.acquire

    def counting(self: ExpertStore, layer: int, experts: Sequence[int]) -> Any:
        self.counts.requests += 1
        return acquire(self, layer, experts)

    monkeypatch.setattr(ExpertStore, "acquire", counting)
    with pytest.raises(AssertionError, match=r"its rows chose \d+ experts, \d+ one by one"):
        counts_are_exact(oracles, CELL, Witness())
