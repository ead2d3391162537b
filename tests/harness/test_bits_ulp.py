"""Comparator: distances in units in the last place."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal


@pytest.mark.parametrize(
    ("dtype", "actual", "expected", "ulp"),
    [
        (mx.bfloat16, 16.125, 16.0, 1),
        (mx.bfloat16, 32.0, 31.875, 1),
        (mx.float16, 1.0009765625, 1.0, 1),
        (mx.float32, 1.0, 2.0, 1 << 23),
        (mx.float32, 2.0**-149, -(2.0**-149), 2),
    ],
    ids=["bf16", "bf16-binade", "f16", "f32-octave", "f32-across-zero"],
)
def test_distance_counts_representable_values(
    dtype: mx.Dtype, actual: float, expected: float, ulp: int
) -> None:
    """The distance counts representable values, across binades and across zero."""
    difference = bits_equal(mx.array([actual], dtype=dtype), mx.array([expected], dtype=dtype))
    assert difference is not None
    assert difference.ulp == ulp


def test_integers_have_no_distance() -> None:
    """Integers differ in value, not in units in the last place."""
    difference = bits_equal(mx.array([3]), mx.array([4]))
    assert difference is not None
    assert (difference.actual, difference.expected, difference.ulp) == (3, 4, None)
