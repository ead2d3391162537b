"""Rewind of the head's rows."""

from collections.abc import Callable
from typing import Any

import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder.rewind.head import cut_head, head_length
from mtp_decoder.state import named_state
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import head_lengths, untouched

MODELS = ("gdn", "gdn-mtp2", "flash-next")


def _own(made: Decoding) -> list[Any]:
    return made.cache[len(made.target.layers) : -1]


@pytest.mark.parametrize("length", [0, 1, 4, 11, 12])
@pytest.mark.parametrize("name", MODELS)
def test_every_layer_is_cut(decoding: Callable[..., Decoding], name: str, length: int) -> None:
    """Every layer of the head is cut to the length asked for."""
    made = decoding(name)
    cut_head(made.head.layers, _own(made), length)
    assert set(head_lengths(made.cache, made.target, made.head)) == {length}


@pytest.mark.parametrize("length", [12, 13, 40])
@pytest.mark.parametrize("name", MODELS)
def test_a_length_it_does_not_exceed(
    decoding: Callable[..., Decoding], name: str, length: int
) -> None:
    """A head of no more rows is left alone."""
    made = decoding(name)
    with untouched(made.cache):
        cut_head(made.head.layers, _own(made), length)
    assert head_length(_own(made)) == 12


@pytest.mark.parametrize("name", MODELS)
def test_drafted_rows_go(decoding: Callable[..., Decoding], name: str) -> None:
    """Cutting drafted rows brings the head's caches back to before the draft, in bits."""
    made = decoding(name)
    before = named_state(made.head.layers, _own(made), "head")
    made.session.draft(5)
    cut_head(made.head.layers, _own(made), 12)
    after = named_state(made.head.layers, _own(made), "head")
    require_equal(after, before, what="the head before the draft")
