"""NaN in an answer is an error of the runtime."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Runtime
from tests.fakes.gives_nan import GivesNan


def test_nan_is_an_error(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """Logits with NaN fail the runtime before anything is compared."""
    with pytest.raises(RuntimeFailure, match="logits hold NaN"):
        state_case(oracles_of(GivesNan()), Cell("attn", "tape", 2, 0, "float32", 4), Witness())
