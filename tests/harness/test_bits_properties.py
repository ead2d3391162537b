"""Comparator: what holds for arrays of any content."""

import sys

import mlx.core as mx
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp_conformance.exactness import bits_equal

DTYPES = [mx.uint8, mx.float16, mx.bfloat16, mx.float32, mx.int32, mx.int64]


def _array(patterns: list[int], dtype: mx.Dtype) -> mx.array:
    raw = b"".join(pattern.to_bytes(dtype.size, sys.byteorder) for pattern in patterns)
    return mx.array(list(raw), dtype=mx.uint8).view(dtype)


@settings(deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_one_flipped_bit_is_found_and_located(data: st.DataObject, dtype: mx.Dtype) -> None:
    """Flipping any one bit of any array is found, at its index, with both patterns."""
    width = 8 * dtype.size
    rows, columns = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    words = st.integers(0, 2**width - 1)
    bits = data.draw(st.lists(words, min_size=rows * columns, max_size=rows * columns))
    place = data.draw(st.integers(0, rows * columns - 1))
    flipped = list(bits)
    flipped[place] ^= 1 << data.draw(st.integers(0, width - 1))
    expected = _array(bits, dtype).reshape(rows, columns)
    actual = _array(flipped, dtype).reshape(rows, columns)

    difference = bits_equal(actual, expected)

    assert difference is not None
    assert (difference.index, difference.differing) == (divmod(place, columns), 1)
    assert int(difference.actual_bits or "", 16) == flipped[place]
    assert int(difference.expected_bits or "", 16) == bits[place]


@settings(deadline=None)
@given(
    bits=st.lists(st.integers(0, 2**16 - 1), max_size=20),
    dtype=st.sampled_from([mx.bfloat16, mx.float16, mx.int16]),
)
def test_copies_are_equal(bits: list[int], dtype: mx.Dtype) -> None:
    """Two arrays made of the same bits are equal, whatever values the bits spell."""
    assert bits_equal(_array(bits, dtype), _array(bits, dtype)) is None
