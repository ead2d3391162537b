"""Per-layer embedding against its formulas: hash in Python integers, the rest in float64."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache

from reference_models.config import HybridConfig
from reference_models.ple import NGramHash, PerLayerEmbedding
from reference_models.weights import Weights
from tests.models.formulas import (
    TINY,
    TOLERANCE,
    Array,
    drawn,
    gap,
    numbers,
    random,
    rms_norm,
    sigmoid,
    silu,
    weight,
)

EOS = 256
TOKENS = [7, 9, 259, EOS, 3, 3, 8, 0, EOS, EOS, 5, 6, 7, 258]
PLE = replace(TINY, ple_layer_ids=(1,))


def _splitmix64(seed: int, count: int) -> list[int]:
    """The generator as published: the state grows by gamma, the output mixes the state."""
    found: list[int] = []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        found.append(z ^ z >> 31)
    return found


def _context(position: int, back: int) -> int:
    """The token `back` places earlier; EOS before the start and past an end of text."""
    for step in range(1, back + 1):
        if position - step < 0 or TOKENS[position - step] == EOS:
            return EOS
    return TOKENS[position - back]


def _rows(hashed: NGramHash, config: HybridConfig) -> list[list[int]]:
    found: list[list[int]] = []
    for position in range(len(TOKENS)):
        rows: list[int] = []
        for n in range(2, config.ngram_size + 1):
            mixed = 0
            for back in range(n):
                mixed ^= _context(position, back) * hashed.multipliers[back]
            assert mixed < 2**63  # no overflow in int64
            for head in range(config.heads_per_ngram):
                which = (n - 2) * config.heads_per_ngram + head
                rows.append(mixed % hashed.sizes[which] + hashed.offsets[which])
        found.append(rows)
    return found


@pytest.mark.parametrize("ple_index", [0, 1])
def test_rows(ple_index: int) -> None:
    """Every n-gram's rows are XOR of products, modulo a prime a head, on exact integers."""
    hashed = NGramHash(PLE, ple_index)
    history = mx.array([[EOS, EOS, *TOKENS]], mx.int64)
    assert hashed(history)[0].tolist() == _rows(hashed, PLE)


@pytest.mark.parametrize("ple_index", [0, 1])
def test_multipliers(ple_index: int) -> None:
    """Multipliers are odd and from splitmix64, one sequence a layer, small enough for int64."""
    # The published generator adds gamma before its first output; the hash does so once more.
    values = _splitmix64(PLE.seed + 10007 * ple_index, PLE.ngram_size + 1)[1:]
    half = (2**63 - 1) // PLE.vocab_size // 2
    assert NGramHash(PLE, ple_index).multipliers == [2 * (v % half) + 1 for v in values]


def test_sizes() -> None:
    """Each head has a prime number of rows of its own, and layers share no prime."""
    sizes = [size for index in range(3) for size in NGramHash(PLE, index).sizes]
    assert len(set(sizes)) == 3 * PLE.ngram_heads
    assert all(size % d for size in sizes for d in range(2, size) if d * d <= size)
    assert min(sizes) >= PLE.ngram_vocab_size_base


def test_table() -> None:
    """Heads lie one behind the other, and the table is filled up to a round number of rows."""
    hashed = NGramHash(PLE, 0)
    assert hashed.offsets == [sum(hashed.sizes[:h]) for h in range(PLE.ngram_heads)]
    assert hashed.rows % PLE.make_ngram_vocab_size_divisible_by == 0
    assert 0 <= hashed.rows - sum(hashed.sizes) < PLE.make_ngram_vocab_size_divisible_by


def _expected(c: HybridConfig, w: Weights, x: Array) -> tuple[Array, Array]:
    """What is added to the residual [T, W], and the rows [T, W] that enter the convolution."""
    streams = c.hc_count
    table = weight(w, "ple_embedding.ngram_embedding.weight")
    embedded = np.stack([table[rows].reshape(-1) for rows in _rows(NGramHash(c, 0), c)])
    key = rms_norm(embedded @ weight(w, "key_proj.weight").T, weight(w, "norm_key.weight"), streams)
    query = rms_norm(x, weight(w, "norm_query.weight"), streams)
    score = (key * query).reshape(len(x), streams, -1).sum(-1) / np.sqrt(c.hidden_size)
    score = np.sign(score) * np.sqrt(np.maximum(np.abs(score), 1e-6))
    value = embedded @ weight(w, "value_proj.weight").T
    value = (sigmoid(score)[..., None] * value[:, None]).reshape(len(x), -1)
    rows = rms_norm(value, weight(w, "norm_conv.weight"), streams)
    conv, out = weight(w, "conv1d.weight")[:, 0], np.zeros_like(rows)
    for t in range(len(x)):
        for j in range(c.ple_conv_kernel_size):
            back = (c.ple_conv_kernel_size - 1 - j) * c.ngram_size  # dilation N
            if t - back >= 0:
                out[t] += conv[:, j] * rows[t - back]
    return value + silu(out), rows


@pytest.mark.parametrize("streams", [1, 2])
def test_embedding(streams: int) -> None:
    """The sum's second term is the gated value and its dilated depthwise convolution."""
    config = replace(PLE, hc_count=streams)
    weights = drawn(PerLayerEmbedding.tensors(config, 0))
    x = random(1, len(TOKENS), config.wide_size)
    added, rows = PerLayerEmbedding(config, weights, 0)(x, mx.array([TOKENS]), ArraysCache(4))
    expected = _expected(config, weights, numbers(x)[0])
    assert gap(added[0], expected[0]) < TOLERANCE
    assert gap(rows[0], expected[1]) < TOLERANCE


@pytest.mark.parametrize("split", [1, 2, 5, 13])
def test_state(split: int) -> None:
    """After two calls the last ids and the last (Kp-1) N normed rows are kept."""
    weights = drawn(PerLayerEmbedding.tensors(PLE, 0))
    x, tokens, cache = random(1, len(TOKENS), PLE.wide_size), mx.array([TOKENS]), ArraysCache(4)
    ple = PerLayerEmbedding(PLE, weights, 0)
    ple(x[:, :split], tokens[:, :split], cache)
    ple(x[:, split:], tokens[:, split:], cache)
    assert (cache[2].tolist(), cache[2].dtype) == ([TOKENS[-2:]], mx.int64)
    assert gap(cache[3][0], _expected(PLE, weights, numbers(x)[0])[1][-9:]) < TOLERANCE
