"""Shards: who runs what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtp_conformance.reporting.shard import parse, split

SIZES = st.dictionaries(st.text(max_size=5), st.integers(1, 9), max_size=30)


@given(sizes=SIZES, of=st.integers(1, 6))
def test_shards_differ_by_one_group_at_most(sizes: dict[str, int], of: int) -> None:
    """Every group is in one shard, and no two shards differ by more than the largest group."""
    shards = split(sizes, of)
    assert shards.keys() == sizes.keys()
    loads = [sum(sizes[name] for name in sizes if shards[name] == n) for n in range(1, of + 1)]
    assert sum(loads) == sum(sizes.values())
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)


@given(sizes=SIZES, of=st.integers(1, 6))
def test_the_order_of_collection_does_not_matter(sizes: dict[str, int], of: int) -> None:
    """The same groups in another order are split the same."""
    assert split(dict(reversed(sizes.items())), of) == split(sizes, of)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", "", " 1/2"])
def test_another_form_is_refused(text: str) -> None:
    """What is not I of N, counted from 1, is refused with the form."""
    with pytest.raises(ValueError, match=r"--shard takes I/N with 1 <= I <= N, such as 1/4; got"):
        parse(text)


def test_the_form_is_read() -> None:
    """``2/3`` is the second of three."""
    assert parse("2/3") == (2, 3)
