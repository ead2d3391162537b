"""Refused input: a prompt cache whose entries do not hold the same tokens."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from mtp_decoder import CacheMismatchError, Session
from mtp_decoder.rewind.kv import cut_rows
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import untouched


def _shorten(cache: Any) -> None:
    cut_rows(cache, cache.offset - 1)


def _refused(made: Decoding, message: str) -> None:
    with untouched(made.cache), pytest.raises(CacheMismatchError, match=re.escape(message)):
        Session(made.target, made.head, prompt_cache=made.cache)


def test_attention_layers_of_two_lengths(decoding: Callable[..., Decoding]) -> None:
    """Layers of two lengths are refused, with the length of each."""
    made = decoding("gdn")
    _shorten(made.cache[2])
    _refused(made, "layers disagree on their length: {2: 12, 5: 13}")


def test_a_ring_of_another_length(decoding: Callable[..., Decoding]) -> None:
    """A ring that holds fewer tokens than the other layers is refused."""
    made = decoding("window")
    made.cache[0].offset -= 1
    _refused(made, "layers disagree on their length: {0: 12, 2: 13}")


def test_pooled_layers_of_two_lengths(decoding: Callable[..., Decoding]) -> None:
    """Pooled layers of two lengths are refused."""
    made = decoding("qsa")
    _shorten(made.cache[3][0])
    _refused(made, "layer 3 disagrees on its length: 12 keys, 13 index keys")


def test_index_keys_out_of_step(decoding: Callable[..., Decoding]) -> None:
    """Raw index keys of another length than the keys beside them are refused."""
    made = decoding("qsa")
    _shorten(made.cache[1][1])
    _refused(made, "layer 1 disagrees on its length: 13 keys, 12 index keys")


def test_pooled_rows_out_of_step(decoding: Callable[..., Decoding]) -> None:
    """Pooled rows of fewer blocks than the raw index keys fill are refused."""
    made = decoding("qsa")
    made.cache[1][2][0] = made.cache[1][2][0][:, :2]
    _refused(made, "13 keys, 13 index keys, 2 pooled rows of 4")


@pytest.mark.parametrize("name", ["gdn", "gdn-mtp2"])
def test_a_head_out_of_step(decoding: Callable[..., Decoding], name: str) -> None:
    """A head with fewer pairs than the target has tokens is refused, with both counts."""
    made = decoding(name)
    for cache in made.cache[len(made.target.layers) : -1]:
        _shorten(cache)
    _refused(made, "the head's cache holds 11 pairs for 13 target tokens")


def test_a_pooled_head_out_of_step(decoding: Callable[..., Decoding]) -> None:
    """The same holds where the head has pooled index keys."""
    made = decoding("flash-next")
    for part in made.cache[4].caches[:2]:
        _shorten(part)
    made.cache[4][2][0] = made.cache[4][2][0][:, :2]
    _refused(made, "the head's cache holds 11 pairs for 13 target tokens")


def test_a_second_head_layer_out_of_step(decoding: Callable[..., Decoding]) -> None:
    """Every layer of the head is counted, not the first alone."""
    made = decoding("gdn-mtp2")
    _shorten(made.cache[7])
    _refused(made, "11")


def test_index_keys_of_the_head_out_of_step(decoding: Callable[..., Decoding]) -> None:
    """Raw index keys of the head are counted too."""
    made = decoding("flash-next")
    _shorten(made.cache[4][1])
    _refused(made, "11")


def test_a_lost_frontier(decoding: Callable[..., Decoding]) -> None:
    """A used cache without the residual at its frontier is refused."""
    made = decoding("gdn")
    made.cache[-1][0] = None
    _refused(made, "not filled by this decoder with this head")
