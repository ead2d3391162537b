"""Refused input: a prompt cache that was made for another model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache

from mtp_decoder import CacheMismatchError, Head, Session, Target, make_prompt_cache
from reference_models.checkpoint import read, write
from reference_models.weights import draw
from reference_models.zoo import config_of, tensors_of
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import PROMPT, untouched


def _used(target: Target, head: Head) -> list[Any]:
    cache = make_prompt_cache(target, head)
    Session(target, head, prompt_cache=cache).prefill(PROMPT)
    return cache


def _refused(zoo: Zoo, name: str, cache: Sequence[Any], message: str) -> None:
    with untouched(cache), pytest.raises(CacheMismatchError, match=message):
        Session(*zoo(name), prompt_cache=cache)


def test_too_few_entries(zoo: Zoo) -> None:
    """A cache without the head's entries is refused with both counts and the way to make one."""
    target, _ = zoo("gdn")
    cache = make_prompt_cache(target)
    Session(target, prompt_cache=cache).prefill(PROMPT)
    _refused(zoo, "gdn", cache, r"has 6 entries, this model needs 8; .*make_prompt_cache")


def test_too_many_entries(decoding: Callable[..., Decoding], zoo: Zoo) -> None:
    """A cache with an entry too many is refused."""
    cache = [*decoding("gdn").cache, KVCache()]
    _refused(zoo, "gdn", cache, "has 9 entries, this model needs 8")


def test_other_classes(decoding: Callable[..., Decoding], zoo: Zoo) -> None:
    """A cache of as many entries of other classes is refused at the first that differs."""
    cache = decoding("ple").cache
    message = r"entry 1 .* is a ArraysCache\(size=4\), this model needs a CacheList\(KVCache, KV"
    _refused(zoo, "qsa", cache, message)


def test_fewer_slots(decoding: Callable[..., Decoding], zoo: Zoo) -> None:
    """A recurrent layer's cache with other slots is refused."""
    cache = decoding("flash-next").cache
    cache[1] = decoding("gdn").cache[1]
    message = r"entry 1 .* is a ArraysCache\(size=2\), this model needs a ArraysCache\(size=4\)"
    _refused(zoo, "flash-next", cache, message)


def test_another_window(decoding: Callable[..., Decoding], zoo: Zoo) -> None:
    """A ring of another size is refused."""
    cache = decoding("window").cache
    cache[0] = RotatingKVCache(max_size=16)
    _refused(zoo, "window", cache, "entry 0 of the prompt cache is a RotatingKVCache")


@pytest.mark.parametrize("field", ["head_dim", "linear_value_head_dim"])
def test_other_shapes(zoo: Zoo, tmp_path: Path, field: str) -> None:
    """A cache of the same classes with other head sizes is refused, with both shapes."""
    config = replace(config_of("gdn"), **{field: 32})
    weights = {n: mx.array(draw("wide", n, t)) for n, t in tensors_of(config).items()}
    cache = _used(*read(write(config, weights, tmp_path)))
    _refused(zoo, "gdn", cache, r"layer \d's cache holds .* 32.*this model's holds")


def test_another_dtype(zoo: Zoo) -> None:
    """A cache of another dtype is refused, with both dtypes."""
    cache = _used(*zoo("gdn", mx.bfloat16))
    _refused(zoo, "gdn", cache, r"layer 0's cache holds .*bfloat16.* holds .*float32")


@pytest.mark.parametrize("position", range(2))
def test_another_dtype_in_a_pooled_layer(zoo: Zoo, position: int) -> None:
    """One part of a pooled layer's cache in another dtype is enough to be refused."""
    cache = _used(*zoo("qsa"))
    part = cache[1][position]
    part.keys, part.values = (array.astype(mx.bfloat16) for array in (part.keys, part.values))
    _refused(zoo, "qsa", cache, r"layer 1's cache holds .*bfloat16")


def test_pooled_rows_of_another_dtype(zoo: Zoo) -> None:
    """Pooled rows in another dtype are refused."""
    cache = _used(*zoo("qsa"))
    cache[1][2][0] = cache[1][2][0].astype(mx.bfloat16)
    _refused(zoo, "qsa", cache, "layer 1's cache holds .*bfloat16")


def test_a_head_of_another_dtype(zoo: Zoo) -> None:
    """The head's entries are held against this head as the target's are against this target."""
    cache = _used(*zoo("gdn"))
    other = _used(*zoo("gdn", mx.bfloat16))
    cache[6] = other[6]
    _refused(zoo, "gdn", cache, "bfloat16")


def test_a_half_empty_cache(decoding: Callable[..., Decoding], zoo: Zoo) -> None:
    """A used cache with one layer emptied is refused."""
    target, _ = zoo("gdn")
    cache = decoding("gdn").cache
    cache[0] = target.make_cache()[0]
    _refused(zoo, "gdn", cache, "layer 0's cache holds")
