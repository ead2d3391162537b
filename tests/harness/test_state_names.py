"""States: names that only one side has."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import StateDiffers, compare_states, require_equal

BOTH = {"layers.0.keys": mx.ones((2,))}
MORE = BOTH | {"layers.1.conv": mx.ones((2,))}


def test_missing_and_unexpected_names_are_told_apart() -> None:
    """A name of one side only is missing or unexpected, and is not counted as compared."""
    assert compare_states(BOTH, MORE).missing == ("layers.1.conv",)
    assert compare_states(MORE, BOTH).unexpected == ("layers.1.conv",)
    assert compare_states(MORE, BOTH).arrays == 1


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [(BOTH, MORE, "layers.1 conv is missing"), (MORE, BOTH, "layers.1 conv is unexpected")],
    ids=["missing", "unexpected"],
)
def test_a_name_of_one_side_only_fails(
    actual: dict[str, mx.array], expected: dict[str, mx.array], words: str
) -> None:
    """A state that lacks an array, or has one too many, differs."""
    with pytest.raises(StateDiffers, match=words) as raised:
        require_equal(actual, expected, what="the never-rejected run")
    assert (raised.value.layer, raised.value.component) == ("layers.1", "conv")
    assert raised.value.difference is None
