"""Comparator: zeros of either sign."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32], ids=str)
def test_positive_and_negative_zero_differ(dtype: mx.Dtype) -> None:
    """+0.0 and -0.0 are equal values with different bits, so they differ."""
    difference = bits_equal(mx.array([1.0, 0.0], dtype=dtype), mx.array([1.0, -0.0], dtype=dtype))
    assert difference is not None
    assert (difference.index, difference.differing, difference.ulp) == ((1,), 1, 0)
