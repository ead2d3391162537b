"""A capability that is listed and not there is an error, not a pass of nothing."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Runtime
from tests.fakes.claims_state import ClaimsState


def test_missing_state_is_an_error(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """A state without arrays fails the runtime."""
    with pytest.raises(RuntimeFailure, match="state has no array"):
        state_case(oracles_of(ClaimsState()), Cell("attn", "tape", 2, 0, "float32", 4), Witness())
