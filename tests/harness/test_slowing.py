"""Arrays that wait for long work."""

import io

import mlx.core as mx
import pytest

from mtp_conformance.adapters.slow_caches import slow_down
from mtp_conformance.exactness import require_equal
from mtp_conformance.slowing import slowed
from mtp_decoder.state import named_state
from reference_models.hybrid import HybridModel
from reference_models.prompts import prompt_tokens
from reference_models.weights import Weights
from reference_models.zoo import config_of, random_weights

STEPS = 3


def pending(array: mx.array) -> int:
    """Operations that an array waits for: mlx draws each as a rectangle."""
    drawing = io.StringIO()
    mx.export_to_dot(drawing, array)
    return drawing.getvalue().count("shape=rectangle")


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.int64, mx.uint32])
def test_bits_stay(dtype: mx.Dtype) -> None:
    """A slowed array has the same bits, minus zero and NaN too, and more than its steps to wait."""
    array = mx.array([0.0, 1.0, 3.0]).astype(dtype)
    if dtype in (mx.float32, mx.bfloat16):
        array = mx.concatenate([-array, array / 0])
    mx.eval(array)
    (slow,) = slowed([array], STEPS)
    assert pending(slow) > STEPS
    require_equal({"a": slow}, {"a": array}, what="the array")


@pytest.mark.parametrize("model", ["window", "flash-next"])
def test_every_component(model: str) -> None:
    """The arrays of a component are slowed in every cache that has it, and no others."""
    target = HybridModel(config_of(model), Weights(random_weights(model)))
    caches = target.make_cache()
    mx.eval(target(mx.array([prompt_tokens(9)]), caches))
    mx.eval(named_state(target.layers, caches, "layers"))
    state = named_state(target.layers, caches, "layers")
    kinds = {name.rpartition(".")[2] for name in state} - {"offset", "index_offset"}
    for kind in kinds:
        slow_down(target.layers, caches, "layers", f"layers.{kind}", STEPS)
        found = named_state(target.layers, caches, "layers")
        slow = {name for name, array in found.items() if pending(array) > STEPS}
        due = {name for name in state if name.endswith(f".{kind}")}
        assert slow - due <= {n for n in state if "index_keys" in n or "open_block" in n}
        assert due <= slow
        require_equal(found, state, what="the caches")
