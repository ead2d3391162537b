"""States: comparing nothing proves nothing."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import NothingCompared, require_equal


@pytest.mark.parametrize(
    "state", [{}, {"layers.0.keys": mx.zeros((1, 0, 4))}], ids=["no-array", "no-element"]
)
def test_states_without_elements_are_an_error(state: dict[str, mx.array]) -> None:
    """Two states without a single element are an error, neither a pass nor a failure."""
    with pytest.raises(NothingCompared, match="compared no element") as raised:
        require_equal(state, state, what="the never-rejected run")
    assert not isinstance(raised.value, AssertionError)


def test_an_empty_array_beside_a_full_one_is_compared() -> None:
    """A state may hold arrays of size zero as long as it holds an element."""
    state = {"layers.0.open": mx.zeros((1, 0, 4)), "layers.0.keys": mx.ones((1,))}
    assert require_equal(state, state, what="the never-rejected run") == 2
