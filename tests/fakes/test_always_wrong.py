"""Wrong tokens are named, with the round and both ids."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.protocol import Runtime
from tests.fakes.always_wrong import AlwaysWrong


def test_wrong_tokens_fail(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """The state case fails with the first wrong token."""
    cell = Cell("attn", "tape", 2, 1, "float32", 4)
    with pytest.raises(AssertionError, match=r"round 1: emitted token 0 is \d+, K=0 emits \d+"):
        state_case(oracles_of(AlwaysWrong()), cell, Witness())
