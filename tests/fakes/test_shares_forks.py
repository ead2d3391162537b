"""A fork that moves its original is found before anything is judged by it."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.protocol import Runtime
from tests.fakes.shares_forks import SharesForks


def test_shared_fork_is_told(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """Every case of such a runtime fails and says why, with layer and component."""
    with pytest.raises(StateDiffers, match="fork is not independent"):
        state_case(oracles_of(SharesForks()), Cell("gdn", "tape", 2, 0, "float32", 4), Witness())
