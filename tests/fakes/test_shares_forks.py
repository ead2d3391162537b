"""A fork that moves its original is found before anything is judged by it."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Runtime
from tests.fakes.shares_forks import SharesForks


def test_shared_fork_is_an_error(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """Every case of such a runtime is an error that says why."""
    with pytest.raises(RuntimeFailure, match="fork is not independent"):
        state_case(oracles_of(SharesForks()), Cell("gdn", "tape", 2, 0, "float32", 4), Witness())
