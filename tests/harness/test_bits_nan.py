"""Comparator: not-a-number patterns."""

import mlx.core as mx

from mtp_conformance.exactness import bits_equal

QUIET, OTHER_PAYLOAD = 0x7FC00000, 0x7FC00001


def _nan(bits: int) -> mx.array:
    return mx.array([bits], dtype=mx.uint32).view(mx.float32)


def test_a_nan_equals_its_own_pattern() -> None:
    """A NaN is equal to a NaN of the same bits."""
    assert bits_equal(_nan(QUIET), _nan(QUIET)) is None


def test_nans_of_two_payloads_differ_without_a_distance() -> None:
    """NaNs of two patterns differ, and no ULP distance is claimed between them."""
    difference = bits_equal(_nan(OTHER_PAYLOAD), _nan(QUIET))
    assert difference is not None
    assert (difference.actual_bits, difference.expected_bits) == ("0x7fc00001", "0x7fc00000")
    assert difference.ulp is None
