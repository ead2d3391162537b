"""Rotary embedding against its formula."""

import mlx.core as mx
import numpy as np
import pytest

from mtp_conformance.exactness import bits_equal
from reference_models.rope import rotate
from tests.models import formulas
from tests.models.formulas import TOLERANCE, gap, numbers, random


@pytest.mark.parametrize("dims", [4, 8, 16])
def test_turned_pairs(dims: int) -> None:
    """Pair (i, i + R/2) turns by position * theta^(-2i/R); further dimensions stay."""
    x, positions = random(1, 2, 4, 16), [0, 1, 7, 300]
    expected = numbers(x)
    for head in range(2):
        for row, position in enumerate(positions):
            vector = expected[0, head, row]
            expected[0, head, row] = formulas.rotate(vector, position, dims, 10_000.0)
    assert gap(rotate(x, mx.array(positions), dims, 10_000.0), expected) < TOLERANCE


def test_position_zero() -> None:
    """Position 0 turns nothing, to the bit."""
    x = random(1, 2, 1, 16)
    assert bits_equal(rotate(x, mx.array([0]), 8, 10_000.0), x) is None


def test_dimensions_beyond() -> None:
    """Dimensions that are not turned keep their bits."""
    x = random(1, 2, 3, 16)
    turned = rotate(x, mx.array([5, 6, 7]), 8, 10_000.0)
    assert bits_equal(turned[..., 8:], x[..., 8:]) is None


def test_relative_positions() -> None:
    """Products of turned vectors depend on the distance of their positions."""
    q, k = random(1, 1, 1, 8), random(1, 1, 1, 8, seed=1)
    products = [
        (rotate(q, mx.array([at + 3]), 8, 100.0) * rotate(k, mx.array([at]), 8, 100.0)).sum().item()
        for at in (0, 5, 40)
    ]
    assert np.ptp(products) < TOLERANCE
