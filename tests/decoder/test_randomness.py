"""Random numbers: a function of seed, position and purpose."""

from itertools import product

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal
from mtp_decoder.randomness import Purpose, gumbel, uniform
from tests.models.helpers import listed, number

SEEDS = (0, 1, 2**63, 2**64 - 1)


def test_each_is_its_own() -> None:
    """No two seeds, positions or purposes have a number in common."""
    keys = list(product(SEEDS, range(20), Purpose))
    assert len({uniform(*key) for key in keys}) == len(keys)


def test_again() -> None:
    """The same number comes again, whatever was asked in between."""
    first = [uniform(7, 3, purpose) for purpose in Purpose]
    for position in range(50):
        uniform(8, position, Purpose.TOKEN)
    assert [uniform(7, 3, purpose) for purpose in Purpose] == first


def test_uniform() -> None:
    """Numbers of neighbouring positions fill the unit interval evenly."""
    cells = [0] * 10
    for position in range(10_000):
        cells[int(uniform(1, position, Purpose.ACCEPT) * 10)] += 1
    assert all(abs(count - 1000) < 150 for count in cells)


def test_noise_again() -> None:
    """Noise is the same whatever mlx's own generator did, and leaves that one alone."""
    mx.random.seed(1)
    first, free = gumbel(5, 9, 260), number(mx.random.uniform())
    mx.random.seed(1)
    assert number(mx.random.uniform()) == free
    assert bits_equal(gumbel(5, 9, 260), first) is None


@pytest.mark.parametrize("other", [(5, 10), (6, 9)])
def test_noise_of_another(other: tuple[int, int]) -> None:
    """Another position or seed has other noise."""
    pairs = zip(listed(gumbel(5, 9, 260)), listed(gumbel(*other, 260)), strict=True)
    assert all(a != b for a, b in pairs)
