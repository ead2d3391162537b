"""The zoo: every mechanism is at work within a dozen tokens."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import RotatingKVCache

from reference_models.config import LINEAR
from reference_models.hybrid import HybridLayer, LinearLayer
from reference_models.ple import NGramHash
from reference_models.pooled import IndexedAttention
from reference_models.prompts import PROMPTS, prompt_tokens
from reference_models.weights import Fill
from reference_models.zoo import ZOO, random_weights, tensors_of
from tests.models.conftest import Zoo
from tests.models.helpers import listed, number

LENGTH = 40
WITH_PLE = [name for name, config in ZOO.items() if config.ple_layer_ids]


def _indexed(zoo: Zoo, name: str) -> IndexedAttention:
    layer = zoo(name)[0].layers[-1]
    assert isinstance(layer, HybridLayer)
    assert isinstance(layer.attention, IndexedAttention)
    return layer.attention


def _seen(zoo: Zoo, name: str, length: int) -> list[int]:
    """How many keys the queries of a prompt see in the last layer."""
    target, _ = zoo(name)
    tokens = mx.array([prompt_tokens(length)])
    attention, masks = _indexed(zoo, name), list[mx.array]()
    whole = attention.index

    def watch(x: mx.array, positions: mx.array, cache: object) -> mx.array:
        # A wrapper has no types of its own.
        masks.append(whole(x, positions, cache))  # pyright: ignore[reportArgumentType]
        return masks[-1]

    # A function stands in for the index, to watch it.
    attention.index = watch  # pyright: ignore[reportAttributeAccessIssue]
    try:
        mx.eval(target(tokens))
    finally:
        attention.index = whole
    return listed(masks[0][0, 0].sum(-1))


@pytest.mark.parametrize("name", ["qsa", "flash-next"])
def test_selection_is_dense_at_first(zoo: Zoo, name: str) -> None:
    """Up to position 10 a query sees every key."""
    assert _seen(zoo, name, LENGTH)[:11] == list(range(1, 12))


@pytest.mark.parametrize("name", ["qsa", "flash-next"])
def test_selection_turns_sparse(zoo: Zoo, name: str) -> None:
    """From position 11 on a query sees two blocks of four, and the tail."""
    assert _seen(zoo, name, LENGTH)[11:] == [8 + (p + 1) % 4 for p in range(11, LENGTH)]


@pytest.mark.parametrize("name", ["qsa", "flash-next"])
def test_selection_depends_on_the_query(zoo: Zoo, name: str) -> None:
    """Queries choose different blocks, and neither the first nor the last two always."""
    layer = _indexed(zoo, name)
    x = mx.array(np.random.default_rng(1).normal(size=(1, LENGTH, 32)).astype(np.float32))
    mask = layer.index(x, mx.arange(LENGTH), layer.make_cache())[0, 0]
    blocks = {tuple(row[::4]) for row in listed(mask[24:])}
    assert len(blocks) > 4


@pytest.mark.parametrize("name", ["qsa", "flash-next"])
def test_the_head_selects_too(zoo: Zoo, name: str) -> None:
    """The head's attention is indexed where the target's is."""
    assert isinstance(zoo(name)[1].layers[0].attention, IndexedAttention)


def test_the_ring_wraps_at_eight(zoo: Zoo) -> None:
    """After eight tokens the next one is written over the first."""
    target, _ = zoo("window")
    cache = target.make_cache()
    for token in prompt_tokens(9):
        target(mx.array([[token]]), cache)
    ring = cache[0]
    assert isinstance(ring, RotatingKVCache)
    _, _, offset, _, size, index = ring.state
    assert (offset, size, index) == (9, 8, 1)


@pytest.mark.parametrize("name", WITH_PLE)
def test_hash_multipliers(name: str) -> None:
    """No multiplier of a hash is zero, and no two are equal."""
    hashed = NGramHash(ZOO[name], 0)
    assert len({m for m in hashed.multipliers if m}) == ZOO[name].ngram_size


@pytest.mark.parametrize("name", WITH_PLE)
def test_rows_of_every_order(name: str) -> None:
    """Every head of every n-gram order maps a prompt to many different rows."""
    history = mx.array([[256, 256, *prompt_tokens(LENGTH)]], mx.int64)
    rows = NGramHash(ZOO[name], 0)(history)[0]
    assert min(len(set(column)) for column in listed(rows.T)) >= 15


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("name", ZOO)
def test_norm_weights(name: str, dtype: mx.Dtype) -> None:
    """No norm weight has the value that would leave its norm's result alone."""
    neutral = {Fill.NORM_ABOUT_ZERO: 0.0, Fill.NORM_ABOUT_ONE: 1.0}
    weights = random_weights(name, dtype)
    idle = [
        tensor
        for tensor, spec in tensors_of(ZOO[name]).items()
        if spec.fill in neutral and (weights[tensor] == neutral[spec.fill]).any().item()
    ]
    assert idle == []


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("length", [3, 13, 40, 200])
def test_an_end_of_text_in_every_prompt(prompt: str, length: int) -> None:
    """Even a short prompt carries an end of text, and not as its last token alone."""
    tokens = prompt_tokens(length, prompt)
    assert (len(tokens), tokens[2]) == (length, 256)


@pytest.mark.parametrize("length", [0, -1, 10_000])
def test_lengths_no_prompt_has(length: int) -> None:
    """A length no prompt has is refused, with those it can have."""
    with pytest.raises(ValueError, match=rf"length must be in 1\.\.\d+, not {length}"):
        prompt_tokens(length)


@pytest.mark.parametrize("name", [n for n, config in ZOO.items() if LINEAR in config.layer_types])
def test_decay(zoo: Zoo, name: str) -> None:
    """The recurrence both keeps and forgets: its state is neither constant nor lost at once."""
    target, _ = zoo(name)
    cache = target.make_cache()
    target(mx.array([prompt_tokens(LENGTH)]), cache)
    index = next(i for i, layer in enumerate(target.layers) if isinstance(layer, LinearLayer))
    before = mx.array(cache[index][1])
    target(mx.array([[97]]), cache)
    share = number(mx.abs(cache[index][1] - before).sum() / mx.abs(before).sum())
    assert 0.05 < share < 1.5


@pytest.mark.parametrize("name", [n for n, config in ZOO.items() if config.num_experts])
def test_experts_differ(zoo: Zoo, name: str) -> None:
    """A prompt's tokens go to more than one pair of experts."""
    target, _ = zoo(name)
    layer, chosen = target.layers[0], list[mx.array]()
    # Only models with experts get here; a function stands in for them, to watch them.
    whole = layer.mlp.experts  # pyright: ignore[reportAttributeAccessIssue]

    def watch(x: mx.array, indices: mx.array) -> mx.array:
        chosen.append(indices)
        return whole(x, indices)

    layer.mlp.experts = watch  # pyright: ignore[reportAttributeAccessIssue]
    try:
        mx.eval(target(mx.array([prompt_tokens(LENGTH)])))
    finally:
        layer.mlp.experts = whole  # pyright: ignore[reportAttributeAccessIssue]
    assert len({tuple(sorted(pair)) for pair in listed(chosen[0][0])}) > 4
