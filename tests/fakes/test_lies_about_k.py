"""A silently clamped K shows in the rows of logits."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Runtime
from tests.fakes.lies_about_k import LiesAboutK


def test_clamped_k_is_an_error(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """Two rows of logits for four rows of a verify pass fail the runtime."""
    with pytest.raises(RuntimeFailure, match=r"logits are \(2, 260\), not \(4, 260\)"):
        state_case(oracles_of(LiesAboutK()), Cell("attn", "tape", 3, 0, "float32", 4), Witness())
