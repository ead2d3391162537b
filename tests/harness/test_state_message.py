"""States: what a difference says."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import StateDiffers, require_equal


def test_the_message_says_where_a_rewind_went_wrong() -> None:
    """The message names round, layer, component, first element, bits, distance and the others."""
    expected = {"layers.1.recurrent": mx.ones((2, 2)), "layers.2.conv": mx.ones((1,))}
    actual = {
        "layers.1.recurrent": mx.array([[1.0, 1.0 + 2.0**-23], [1.0, 2.0]]),
        "layers.2.conv": mx.zeros((1,)),
    }
    with pytest.raises(StateDiffers) as raised:
        require_equal(actual, expected, what="the never-rejected run", round=2)
    assert str(raised.value) == (
        "after round 2: layers.1 recurrent differs from the never-rejected run: "
        "2 of 4 elements, first at (0, 1): 0x3f800001 vs 0x3f800000 (1 ULP); also: layers.2 conv"
    )
    assert (raised.value.layer, raised.value.component, raised.value.round) == (
        "layers.1",
        "recurrent",
        2,
    )
    assert raised.value.differing == ("layers.1.recurrent", "layers.2.conv")


def test_an_array_outside_layers_has_a_component_only() -> None:
    """The logits have no layer."""
    with pytest.raises(StateDiffers, match=r"^logits differs from K=0: 1 of 1") as raised:
        require_equal({"logits": mx.ones((1,))}, {"logits": mx.zeros((1,))}, what="K=0")
    assert (raised.value.layer, raised.value.component) == ("", "logits")


def test_a_long_list_of_others_is_cut() -> None:
    """The message lists six other arrays and counts the rest."""
    expected = {f"layers.{layer}.keys": mx.zeros((1,)) for layer in range(9)}
    actual = {name: mx.ones((1,)) for name in expected}
    with pytest.raises(StateDiffers, match=r"layers\.6 keys and 2 more$"):
        require_equal(actual, expected, what="K=0")
