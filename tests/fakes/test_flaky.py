"""A second run that differs is an error, never a pass."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.oracles import NotDeterministic
from mtp_conformance.protocol import Runtime
from tests.fakes.flaky import Flaky


def test_flaky_runtime_is_not_deterministic(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """Every case of such a runtime says that K=0 twice gives two results."""
    with pytest.raises(NotDeterministic, match="K=0 run twice gives two results"):
        state_case(oracles_of(Flaky()), Cell("attn", "tape", 2, 0, "float32", 4), Witness())
