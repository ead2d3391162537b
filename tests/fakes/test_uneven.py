"""A right decoder on a device that rounds by the number of rows, told to decode row-exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.control.test_rows import test_block_equals_steps as rows_case
from conformance.control.test_rows import test_row_exact as row_exact_case
from conformance.emit.test_budget import test_budget as budget_case
from conformance.rewind.test_state import test_one_round as state_case
from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Capability, Description
from mtp_decoder.session import Round, Session
from tests.fakes.uneven import UnevenRuntime

CELL = Cell("ple", "tape", 3, 1, "float32", 5)


class _WithoutTheMode(UnevenRuntime):
    """A runtime that has none."""

    def describe(self) -> Description:
        """As the runtime, without the capability."""
        card = super().describe()
        return replace(card, capabilities=card.capabilities - {Capability.ROW_EXACT})


@pytest.fixture(scope="module")
def row_exact(tmp_path_factory: pytest.TempPathFactory) -> Oracles:
    """Oracles that have every session decode row-exact."""
    folder = tmp_path_factory.mktemp("zoo")
    return Oracles(UnevenRuntime(), builtin.zoo_materials(folder), row_exact=True)


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Oracles:
    """Oracles that leave it to the case."""
    folder = tmp_path_factory.mktemp("zoo")
    return Oracles(UnevenRuntime(), builtin.zoo_materials(folder))


@pytest.mark.parametrize("case", [rows_case, state_case, stream_case, row_exact_case])
def test_bits_are_there(row_exact: Oracles, case: object) -> None:
    """Rows, states and streams have the bits of one-token steps."""
    assert callable(case)
    witness = Witness()
    case(row_exact, CELL, witness)
    assert witness.as_dict()["compared"]


def test_without_it_a_session_may_still_be_told(ordinary: Oracles) -> None:
    """The case of the mode turns it on by itself; ordinary rows differ."""
    witness = Witness()
    row_exact_case(ordinary, CELL, witness)
    assert witness.as_dict()["compared"]
    with pytest.raises(StateDiffers):
        rows_case(ordinary, CELL, Witness())


def test_a_prefill_is_promised_nothing(row_exact: Oracles) -> None:
    """Where a prompt in one pass rounds otherwise than steps, what needs its bits is open."""
    with pytest.raises(Inconclusive, match="one pass over many tokens"):
        budget_case(row_exact, Cell("attn", "tape", 4, None, "float32", 5), Witness())


def test_a_runtime_without_the_mode_is_refused(tmp_path: Path) -> None:
    """And told so before anything runs."""
    with pytest.raises(RuntimeFailure, match="no row-exact mode"):
        Oracles(_WithoutTheMode(), builtin.zoo_materials(tmp_path), row_exact=True)


def test_a_wrong_prefill_is_no_rounding(
    ordinary: Oracles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where a prompt in one pass is apart by more than rounding, nothing is left open."""
    prefill = Session.prefill

    def forgetful(self: Session, prompt: Sequence[int]) -> Round:
        return prefill(self, [*prompt[:-1], (prompt[-1] + 1) % 256] if len(prompt) > 9 else prompt)

    key = ordinary.group(CELL).key
    assert not ordinary.prefill_exact(key)
    monkeypatch.setattr(Session, "prefill", forgetful)
    broken = Oracles(UnevenRuntime(), builtin.zoo_materials(tmp_path))
    assert broken.prefill_exact(key)
