"""Norms against their formulas."""

import mlx.core as mx
import numpy as np
import pytest

from reference_models.norms import gated_rms_norm, l2_norm, rms_norm, silu
from tests.models import formulas
from tests.models.formulas import TOLERANCE, gap, numbers, random
from tests.models.helpers import number


@pytest.mark.parametrize("scale", [1.0, 1e-3, 30.0])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_rms_norm(groups: int, scale: float) -> None:
    """Each group is divided by its own root mean square and scaled by 1 + w."""
    x, weight = random(2, 3, 8, scale=scale), random(8, seed=1, scale=0.3)
    expected = formulas.rms_norm(numbers(x), numbers(weight), groups)
    assert gap(rms_norm(x, weight, 1e-6, groups), expected) < TOLERANCE


def test_groups_matter() -> None:
    """A group's loud values do not quieten another group."""
    x = mx.concatenate([random(1, 4), 100.0 * random(1, 4, seed=1)], axis=-1)
    apart = rms_norm(x, mx.zeros((8,)), 1e-6, 2)
    together = rms_norm(x, mx.zeros((8,)), 1e-6)
    largest = [number(mx.abs(normed[:, :4]).max()) for normed in (apart, together)]
    assert largest[0] > 10 * largest[1]


@pytest.mark.parametrize("scale", [1.0, 1e-3, 3e-4])
def test_l2_norm(scale: float) -> None:
    """The epsilon is added to the sum of squares, which small vectors show."""
    x = random(3, 8, scale=scale)
    wide = numbers(x)
    expected = wide / np.sqrt((wide * wide).sum(-1, keepdims=True) + 1e-6)
    assert gap(l2_norm(x), expected) < TOLERANCE


def test_an_epsilon_in_the_mean_is_another_norm() -> None:
    """For small vectors an epsilon added to the mean gives something else by far."""
    wide = numbers(random(3, 8, scale=1e-3))
    in_mean = wide / np.sqrt(8 * ((wide * wide).mean(-1, keepdims=True) + 1e-6))
    assert gap(l2_norm(random(3, 8, scale=1e-3)), in_mean) > 1000 * TOLERANCE


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_norm(activation: str) -> None:
    """The gated norm scales by w, stored about one, and by the activated gate."""
    x, gate, weight = random(2, 8), random(2, 8, seed=1), random(8, seed=2)
    ours = {"silu": silu, "sigmoid": mx.sigmoid}[activation]
    theirs = {"silu": formulas.silu, "sigmoid": formulas.sigmoid}[activation]
    normed = formulas.rms_norm(numbers(x), numbers(weight) - 1.0)
    expected = normed * theirs(numbers(gate))
    assert gap(gated_rms_norm(x, gate, weight, 1e-6, ours), expected) < TOLERANCE


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_dtypes(dtype: mx.Dtype) -> None:
    """A norm returns the dtype it was given; the L2 norm of the recurrence is float32."""
    x = random(2, 8).astype(dtype)
    assert rms_norm(x, mx.zeros((8,), dtype), 1e-6).dtype == dtype
    assert l2_norm(x).dtype == mx.float32
