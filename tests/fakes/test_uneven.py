"""A right decoder on a device that rounds by the number of rows, told to decode row-exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from conformance.control.test_rows import test_block_equals_steps as rows_case
from conformance.control.test_rows import test_row_exact as row_exact_case
from conformance.emit.test_budget import test_budget as budget_case
from conformance.experts.test_grouped import test_equals_ungrouped as sorted_case
from conformance.experts.test_prefill import test_reads_once as chunks_case
from conformance.lifecycle.test_continue import test_after_rounds as turn_case
from conformance.rewind.test_state import test_one_round as state_case
from conformance.story.test_any_order import test_any_order as story_case
from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_conformance.adapters.builtin import BuiltinRuntime
from mtp_conformance.exactness import StateDiffers, require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.group import target_arrays
from mtp_conformance.oracles import key_of
from mtp_conformance.protocol import Capability, Description, Options
from mtp_decoder.session import Round, Session
from tests.fakes.uneven import UnevenRuntime, few_values
from tests.faults.registry import seeded

CELL = Cell("ple", "tape", 3, 1, "float32", 5)


class _WithoutTheMode(UnevenRuntime):
    """A runtime that has none."""

    def describe(self) -> Description:
        """As the runtime, without the capability."""
        card = super().describe()
        return replace(card, capabilities=card.capabilities - {Capability.ROW_EXACT})


class _EvenUnsorted(UnevenRuntime):
    """A runtime on which products round otherwise but those of rows as they come."""

    def open(self, model: str, checkpoint: Path, options: Options) -> builtin.BuiltinSession:
        """As the runtime, or evenly."""
        even = options.group_experts == "off"
        return (BuiltinRuntime.open if even else UnevenRuntime.open)(
            self, model, checkpoint, options
        )


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


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Oracles:
    """As `row_exact`, on a device where but few values of narrow passes round otherwise."""
    folder = tmp_path_factory.mktemp("zoo")
    return Oracles(UnevenRuntime(few_values), builtin.zoo_materials(folder), row_exact=True)


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


def test_few_values_of_narrow_passes_are_open_too(
    few: Oracles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next turn is a narrow pass over prompt tokens: a prompt in one pass may look exact.

    It is for the device to say whether rounding can have done it.
    """
    cell = Cell("gdn", "tape", None, None, "float32", 1)
    with pytest.raises(StateDiffers):
        turn_case(few, cell, Witness())
    assert few.prefill_exact(key_of(cell))
    monkeypatch.setattr("mtp_conformance.probe.products_are_row_exact", lambda: False)
    with pytest.raises(Inconclusive, match="one pass over many tokens"):
        turn_case(few, cell, Witness())


@pytest.mark.parametrize("count", ["offset", "absent"])
def test_what_no_rounding_does_is_condemned(
    row_exact: Oracles, monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    """A count that is off or an array that is not there, beside values that round otherwise."""
    cell = Cell("ple", "tape", None, None, "float32", 5)
    group = row_exact.group(cell)
    direct, steps = target_arrays(group.direct_state(3)), target_arrays(group.plain_state(3))
    with pytest.raises(StateDiffers) as rounded:
        require_equal(direct, steps, what="steps")
    assert not row_exact.condemns(group.key, [], rounded.value, prefill=True)
    name = next(name for name in direct if name.endswith("offset"))
    wrong = {n: array for n, array in direct.items() if n != name}
    if count == "offset":
        wrong[name] = direct[name] + 1
    with pytest.raises(StateDiffers) as found:
        require_equal(wrong, steps, what="steps")
    assert row_exact.condemns(group.key, [], found.value, prefill=True)


def test_a_story_of_rounds_alone_is_of_steps(
    row_exact: Oracles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which row-exact decoding promises bits, whatever prompts do here."""
    seeded()["partial-commit-is-bookkeeping"].apply(monkeypatch)
    with pytest.raises(StateDiffers, match="story: prefill; round"):
        story_case(row_exact, Cell("gdn", "tape", None, None, "float32", 5), Witness(), "default")


def test_chunks_of_a_prompt_are_promised_nothing(row_exact: Oracles) -> None:
    """Experts on disk or not: chunks of another width may round otherwise."""
    with pytest.raises(Inconclusive, match="one pass over many tokens"):
        chunks_case(row_exact, Cell("gdn-moe", "tape", None, None, "float32", 5), Witness())


def test_sorted_rows_of_a_prompt_are_promised_nothing(tmp_path: Path) -> None:
    """Nor do rows of a prompt that are sorted by expert have to be those that are not."""
    oracles = Oracles(_EvenUnsorted(), builtin.zoo_materials(tmp_path), row_exact=True)
    cell = Cell("gdn-moe", "tape", 31, None, "float32", 33)
    with pytest.raises(Inconclusive, match="one pass over many tokens"):
        sorted_case(oracles, cell, Witness(), "default")


def test_packed_rows_may_round() -> None:
    """Quantised rows are whole numbers that rounding moves; counts beside them are not."""
    rows = {"0.keys": mx.array([[7]], mx.uint32), "0.keys_scales": mx.array([[0.5]])}
    steps = {**rows, "0.keys": mx.array([[8]], mx.uint32), "0.offset": mx.array(3)}
    for offset, rounding in ((3, True), (4, False)):
        with pytest.raises(StateDiffers) as found:
            require_equal({**rows, "0.offset": mx.array(offset)}, steps, what="steps")
        assert found.value.rounding is rounding


@pytest.mark.parametrize("wild", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_round(wild: float) -> None:
    """Wherever in an array it stands."""
    mine, its = mx.array([1.0000001, wild]), mx.array([1.0, 2.0])
    with pytest.raises(StateDiffers) as found:
        require_equal({"0.conv": mine}, {"0.conv": its}, what="steps")
    assert not found.value.rounding
