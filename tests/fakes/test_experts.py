"""Runtimes that list experts on disk and have none pass nothing by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.experts.test_bits import test_every_budget as bits_case
from conformance.experts.test_cancel import test_mid_read as cancel_case
from conformance.experts.test_counts import test_counts_are_exact as counts_case
from conformance.experts.test_files import test_refused as refused_case
from conformance.experts.test_files import test_short_read as short_case
from conformance.experts.test_prefill import test_reads_once as prefill_case
from conformance.experts.test_rewind import test_reads_none as rewind_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.adapters.builtin import zoo_materials
from mtp_conformance.failure import RuntimeFailure
from tests.fakes.ignores_experts import ClaimsExperts, IgnoresExperts

CELL = Cell("gdn-moe", "tape", 3, None, "float32", 4)


@pytest.fixture
def deaf(tmp_path: Path) -> Oracles:
    """Return oracles of a runtime that is deaf to budgets."""
    return Oracles(IgnoresExperts(), zoo_materials(tmp_path))


@pytest.fixture
def claiming(tmp_path: Path) -> Oracles:
    """Return oracles of one that counts zeros besides."""
    return Oracles(ClaimsExperts(), zoo_materials(tmp_path))


def test_no_counter(deaf: Oracles) -> None:
    """Without the counters the cases that need them are errors."""
    with pytest.raises(RuntimeFailure, match="does not count expert_reads"):
        bits_case(deaf, CELL, Witness(), "gate")
    with pytest.raises(RuntimeFailure, match="does not count expert_requests"):
        counts_case(deaf, CELL, Witness())


def test_nothing_read(claiming: Oracles) -> None:
    """Where no expert was read, nothing was shown."""
    with pytest.raises(Inconclusive, match="reads 0 of at least 1"):
        bits_case(claiming, CELL, Witness(), "gate")
    with pytest.raises(Inconclusive, match="reads 0 of at least 3"):
        rewind_case(claiming, CELL, Witness())
    with pytest.raises(Inconclusive, match="reads 0 of at least 1"):
        prefill_case(claiming, CELL, Witness())


def test_no_request(claiming: Oracles) -> None:
    """A pass asks for experts, whatever a runtime says."""
    with pytest.raises(AssertionError, match=r"counts 0 requests.*its rows chose \d+ experts"):
        counts_case(claiming, CELL, Witness())


def test_nothing_refused(deaf: Oracles, tmp_path: Path) -> None:
    """A budget for nothing that is taken all the same is a failure."""
    with pytest.raises(AssertionError, match="with budgets of 6144 and 6144 bytes was opened"):
        refused_case(deaf, CELL, Witness(), tmp_path)


def test_nothing_to_read(deaf: Oracles, tmp_path: Path) -> None:
    """A round that needs no file meets no end of it, and cannot be interrupted in reading it."""
    with pytest.raises(AssertionError, match="read experts from a file that had ended"):
        short_case(deaf, CELL, Witness(), tmp_path)
    with pytest.raises(Inconclusive, match="0 reads to interrupt in a round, not 1"):
        cancel_case(deaf, CELL, Witness())
