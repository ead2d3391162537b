"""Comparator: every dtype a cache or a logit may have, in every layout."""

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal

DTYPES = [
    mx.bool_,
    mx.uint8,
    mx.uint16,
    mx.uint32,
    mx.uint64,
    mx.int8,
    mx.int16,
    mx.int32,
    mx.int64,
    mx.float16,
    mx.bfloat16,
    mx.float32,
    mx.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_changed_element_is_located_with_both_values(dtype: mx.Dtype) -> None:
    """The first differing element is named with both of its values."""
    expected = mx.zeros((2, 3), dtype=dtype)
    actual = mx.array(expected)
    actual[1, 1] = mx.array(1, dtype=dtype)
    difference = bits_equal(actual, expected)
    assert difference is not None
    assert (difference.index, difference.actual, difference.expected) == ((1, 1), 1, 0)
    assert (difference.differing, difference.total) == (1, 6)


def test_a_scalar_is_located_at_the_empty_index() -> None:
    """A zero-dimensional array differs at ()."""
    difference = bits_equal(mx.array(5), mx.array(6))
    assert difference is not None
    assert difference.index == ()


def test_memory_layout_does_not_matter() -> None:
    """A transposed view equals a contiguous array of the same elements."""
    array = mx.arange(6, dtype=mx.float32).reshape(2, 3)
    columns = mx.array([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    assert bits_equal(array.T, columns) is None
