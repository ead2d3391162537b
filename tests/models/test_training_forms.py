"""The quick forms that are trained compute the specification's models.

Sums run in another order: logits are compared within 1e-4 of the largest, not in bits.
"""

import mlx.core as mx
import numpy as np
import pytest

from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead
from reference_models.training.fast_forms import build
from reference_models.training.losses import residual
from reference_models.training.recipe import RECIPES
from reference_models.weights import Weights
from reference_models.zoo import ZOO, config_of, random_weights
from tests.models.helpers import number
from tests.models.training import tiny_training

TOKENS = {
    "any": mx.array(np.random.default_rng(3).integers(0, 257, (2, 64))),
    "one that repeats": mx.full((2, 64), 97),
}


def _require_close(found: mx.array, expected: mx.array) -> None:
    assert found.shape == expected.shape
    assert number(mx.abs(found - expected).max()) < 1e-4 * number(mx.abs(expected).max())


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("name", [n for n in ZOO if n != "attn-ties"])
def test_target_and_head(name: str, tokens: str) -> None:
    """Logits of target and head agree for every zoo model, also where all keys are alike."""
    config, arrays = config_of(name), random_weights(name)
    weights, inputs = Weights(arrays), TOKENS[tokens]
    target = HybridModel(config, weights)
    head = MTPHead(config, weights.at("mtp"), target)
    quick, quick_head, _ = build(config, arrays)
    x = residual(target, inputs)
    _require_close(quick.logits(residual(quick, inputs)), target.logits(x))
    pairs = x[:, :-1], inputs[:, 1:]
    for found, expected in zip(
        quick_head(*pairs, quick_head.make_cache()), head(*pairs, head.make_cache()), strict=True
    ):
        _require_close(found, expected)


def test_only_whole_chunks() -> None:
    """A length that is no multiple of a chunk is refused."""
    quick, _, _ = build(config_of("gdn"), random_weights("gdn"))
    with pytest.raises(ValueError, match="33 positions are not whole chunks of 32"):
        residual(quick, mx.zeros((1, 33), mx.int32))


@pytest.mark.parametrize("model", ["gdn", "flash-next"])
def test_every_weight_learns(model: str) -> None:
    """Four steps move every weight of target, head and index, whichever optimizer has it."""
    training = tiny_training(model)
    before = dict(training.arrays)
    for _ in range(4):
        training.step()
    still = [n for n, a in training.arrays.items() if number(mx.all(a == before[n]))]
    assert not still


@pytest.mark.parametrize("name", RECIPES)
def test_about_a_million(name: str) -> None:
    """What is trained has about a million parameters."""
    from reference_models.zoo import parameters_of

    assert 0.8e6 < parameters_of(RECIPES[name].config) < 1.3e6
