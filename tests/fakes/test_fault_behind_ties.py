"""A real rollback fault is not excused by rounding."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.near_tie import StreamDiffers
from mtp_conformance.protocol import Runtime
from tests.fakes.rounds_differently import RoundsDifferently
from tests.faults.fault import Fault
from tests.faults.registry import seeded

CONV = seeded()["skip-conv-restore"]
FAULTS = (CONV, seeded()["skip-kv-trim-last"], seeded()["head-trim-off-by-one"])
Make = Callable[[Runtime], Oracles]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_state_case_kills_the_fault(
    fault: Fault, oracles_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows round differently the state case still names the broken component."""
    fault.apply(monkeypatch)
    with pytest.raises(StateDiffers) as caught:
        cell = Cell("gdn", "tape", 3, 1, "bfloat16", 5)
        state_case(oracles_of(RoundsDifferently()), cell, Witness())
    assert (caught.value.layer, caught.value.component) in fault.breaks


def test_stream_is_no_near_tie(oracles_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that ties excuse in the right runtime fails in the faulty one."""
    CONV.apply(monkeypatch)
    cell = Cell("gdn-mtp2", "tape", 3, None, "bfloat16", 3)
    with pytest.raises(StreamDiffers, match="no near-tie"):
        stream_case(oracles_of(RoundsDifferently()), cell, Witness())
