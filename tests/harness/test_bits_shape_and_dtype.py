"""Comparator: shape comes before dtype, dtype before bits."""

import mlx.core as mx

from mtp_conformance.exactness import DifferenceKind, bits_equal


def test_shapes_differ_although_the_elements_are_the_same() -> None:
    """A (1, 4) array differs from a (4,) array of the same bytes."""
    difference = bits_equal(mx.zeros((1, 4)), mx.zeros((4,)))
    assert difference is not None
    assert (difference.kind, str(difference)) == (DifferenceKind.SHAPE, "shape (1, 4) vs (4,)")


def test_dtypes_differ_although_the_bits_are_the_same() -> None:
    """A float16 zero differs from a bfloat16 zero."""
    difference = bits_equal(mx.zeros((2,), dtype=mx.float16), mx.zeros((2,), dtype=mx.bfloat16))
    assert difference is not None
    assert difference.kind is DifferenceKind.DTYPE
    assert (difference.actual, difference.expected) == ("float16", "bfloat16")


def test_shape_is_reported_before_dtype() -> None:
    """Where both differ, the shape is named."""
    difference = bits_equal(mx.zeros((1,), dtype=mx.int32), mx.zeros((2,)))
    assert difference is not None
    assert difference.kind is DifferenceKind.SHAPE


def test_empty_arrays_of_two_shapes_differ() -> None:
    """A (0, 3) array differs from a (0, 4) array, and equals another (0, 3) array."""
    assert bits_equal(mx.zeros((0, 3)), mx.zeros((0, 4))) is not None
    assert bits_equal(mx.zeros((0, 3)), mx.zeros((0, 3))) is None
