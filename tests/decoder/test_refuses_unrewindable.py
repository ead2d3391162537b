"""Refused input: caches that no rewind is known for."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ChunkedKVCache, RotatingKVCache

from mtp_decoder import (
    Session,
    UnrewindableCacheError,
    generate_step,
    make_prompt_cache,
)
from reference_models.mtp import MTPHead
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, OtherCaches, Plain, Source, untouched


class _HeadWithRing:
    def __init__(self, head: MTPHead, ring: RotatingKVCache) -> None:
        self.layers = head.layers
        self._head = head
        self._ring = ring

    def make_cache(self) -> list[RotatingKVCache]:
        return [self._ring]

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[RotatingKVCache]
    ) -> tuple[mx.array, mx.array]:
        return self._head(hidden, tokens, cache)


def test_a_chunked_cache(zoo: Zoo) -> None:
    """A chunked cache is refused before anything is decoded, with layer number and class."""
    target, head = zoo("gdn")
    other = OtherCaches(target, {2: ChunkedKVCache(64)})
    cache = make_prompt_cache(other, head)
    with (
        untouched(cache),
        pytest.raises(UnrewindableCacheError, match=r"layer 2: .* ChunkedKVCache of a HybridLay"),
    ):
        generate_step(PROMPT, other, head, prompt_cache=cache)


def test_a_ring_that_keeps_its_first_tokens(zoo: Zoo) -> None:
    """A ring that keeps first tokens for ever is refused."""
    target, head = zoo("window")
    other = OtherCaches(target, {0: RotatingKVCache(max_size=8, keep=4)})
    with pytest.raises(UnrewindableCacheError, match=r"layer 0: .* RotatingKVCache"):
        Session(other, head)


def test_given_drafts_without_a_head(zoo: Zoo) -> None:
    """Drafts of a draft source are refused at the call too, before the prompt is run."""
    other = OtherCaches(zoo("gdn")[0], {2: ChunkedKVCache(64)})
    cache = make_prompt_cache(other)
    with untouched(cache), pytest.raises(UnrewindableCacheError, match=r"layer 2: .*Chunked"):
        generate_step(PROMPT, other, draft_source=Source([1, 2]), prompt_cache=cache)


def test_without_drafts_any_cache_will_do(zoo: Zoo) -> None:
    """Without drafts nothing is rewound, and the refused model decodes as any other."""
    target, _ = zoo("gdn")
    other = OtherCaches(target, {2: ChunkedKVCache(64)})
    emitted = generate_step(PROMPT, other, num_draft_tokens=0, max_tokens=4)
    assert [token for token, _, _ in emitted] == Plain(target).tokens(4)


def test_a_head_with_a_ring(zoo: Zoo) -> None:
    """A head whose cache has no rewind is refused as a target's layer is.

    Trimming a full ring leaves holes in it, so a head's ring would go wrong silently.
    """
    target, head = zoo("gdn")
    with pytest.raises(UnrewindableCacheError, match="RotatingKVCache"):
        Session(target, _HeadWithRing(head, RotatingKVCache(max_size=8)))
