"""States: comparing nothing proves nothing."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import NothingCompared, require_equal
from mtp_conformance.verdict import Inconclusive


@pytest.mark.parametrize(
    "state", [{}, {"layers.0.keys": mx.zeros((1, 0, 4))}], ids=["no-array", "no-element"]
)
def test_states_without_elements_are_inconclusive(state: dict[str, mx.array]) -> None:
    """Two states without a single element are no pass."""
    with pytest.raises(NothingCompared) as raised:
        require_equal(state, state, what="the never-rejected run")
    assert isinstance(raised.value, Inconclusive)


def test_an_empty_array_beside_a_full_one_is_compared() -> None:
    """A state may hold arrays of size zero as long as it holds an element."""
    state = {"layers.0.open": mx.zeros((1, 0, 4)), "layers.0.keys": mx.ones((1,))}
    assert require_equal(state, state, what="the never-rejected run") == 2
