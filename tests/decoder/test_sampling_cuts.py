"""Sampling: which tokens a cut leaves, and how likely each is then."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import sample_utils

from mtp_conformance.exactness import bits_equal
from mtp_decoder import Sampling
from tests.models.helpers import listed


def _kept(logits: mx.array, **cut: Any) -> list[int]:
    """The tokens left of one row."""
    shaped = Sampling(temp=1.0, **cut).shape(logits[None])[0]
    return [i for i, value in enumerate(listed(shaped)) if value > -np.inf]


def _logits(*probabilities: float) -> mx.array:
    return mx.log(mx.array(probabilities))


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_k": 1}, [2]),
        ({"top_k": 3}, [0, 2, 3]),
        ({"top_k": 4}, [0, 1, 2, 3]),
        ({"top_k": 9}, [0, 1, 2, 3]),
        ({"top_p": 0.45}, [2]),
        ({"top_p": 0.55}, [2, 3]),
        ({"top_p": 0.85}, [0, 2, 3]),
        ({"top_p": 0.95}, [0, 1, 2, 3]),
        ({"top_p": 0.001}, [2]),
        ({"top_p": 0.0}, [0, 1, 2, 3]),
        ({"min_p": 0.21}, [0, 2, 3]),
        ({"min_p": 0.5}, [2, 3]),
        ({"min_p": 1.0}, [2]),
        ({"top_k": 3, "top_p": 0.55}, [2, 3]),
        ({"top_k": 1, "top_p": 0.85, "min_p": 0.21}, [2]),
        ({"top_k": 3, "top_p": 0.95, "min_p": 0.5}, [2, 3]),
    ],
)
def test_left(cut: dict[str, Any], left: list[int]) -> None:
    """Each cut keeps the likeliest tokens; together they keep as many as the strictest."""
    assert _kept(_logits(0.15, 0.08, 0.5, 0.27), **cut) == left


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 3}, [0, 1, 3]),
        ({"top_k": 4}, [0, 1, 2, 3]),
        ({"top_p": 0.65}, [0, 1, 3]),
        ({"top_p": 0.2}, [1]),
        ({"min_p": 0.99}, [1, 3]),
    ],
)
def test_ties(cut: dict[str, Any], left: list[int]) -> None:
    """Where a cut goes through equal tokens the lowest ids stay."""
    assert _kept(mx.array([0.0, 1.0, 0.0, 1.0, 0.0]), **cut) == left


def test_all_equal() -> None:
    """Of tokens that are all equal the lowest ids stay."""
    assert _kept(mx.zeros(300), top_k=5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_as_mlx_lm(seed: int) -> None:
    """Without ties the cuts leave what mlx-lm's leave, one after the other in its order."""
    logits = mx.random.normal((260,), key=mx.random.key(seed)) * 3
    logprobs = logits - mx.logsumexp(logits)
    theirs = sample_utils.apply_top_p(logprobs[None], 0.8)
    theirs = sample_utils.apply_min_p(theirs, 0.02)
    theirs = sample_utils.apply_top_k(theirs, 30)[0]
    left = [i for i, value in enumerate(listed(theirs)) if value > -np.inf]
    assert _kept(logits, top_p=0.8, min_p=0.02, top_k=30) == left
    assert 1 < len(left) < 31


@pytest.mark.parametrize("temp", [0.3, 1.0, 2.0])
def test_the_temperature_comes_after_the_cuts(temp: float) -> None:
    """What is left is decided at temperature 1, and its odds are raised to 1/T."""
    made = Sampling(temp=temp, top_p=0.85).probabilities(_logits(0.15, 0.08, 0.5, 0.27)[None])[0]
    weights = np.array([0.15, 0, 0.5, 0.27]) ** (1 / temp)
    np.testing.assert_allclose(listed(made), weights / weights.sum(), rtol=2e-6)


@pytest.mark.parametrize("temp", [1e-3, 1e-12, 1e-40])
def test_hardly_any_temperature(temp: float) -> None:
    """The lower the temperature the nearer to greedy; nothing overflows on the way."""
    made = Sampling(temp=temp).probabilities(mx.array([[700.0, 705.0, -3.0]]))
    assert listed(made[0]) == [0.0, 1.0, 0.0]


def test_in_float32() -> None:
    """The law is computed in float32, whatever the logits are."""
    logits = (mx.random.normal((1, 260), key=mx.random.key(1)) * 3).astype(mx.bfloat16)
    sampling = Sampling(temp=0.7, top_p=0.9)
    assert bits_equal(sampling.shape(logits), sampling.shape(logits.astype(mx.float32))) is None


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("cut", [{}, {"top_p": 0.7, "top_k": 9, "min_p": 0.01}])
def test_a_row_alone(dtype: mx.Dtype, cut: dict[str, Any]) -> None:
    """A row among others has the bits it has alone."""
    rows = (mx.random.normal((6, 260), key=mx.random.key(1)) * 3).astype(dtype)
    sampling = Sampling(temp=0.7, **cut)
    together = sampling.shape(rows)
    alone = mx.concatenate([sampling.shape(rows[i : i + 1]) for i in range(6)])
    assert bits_equal(together, alone) is None


@pytest.mark.parametrize(
    ("size", "top_p", "left"),
    [(2, 0.5, [0]), (4, 0.25, [0]), (4, 0.5, [0, 1]), (8, 0.75, [0, 1, 2, 3, 4, 5])],
)
def test_a_sum_that_is_top_p(size: int, top_p: float, left: list[int]) -> None:
    """Tokens that come to exactly `top_p` are enough: the next one is cut."""
    assert _kept(mx.zeros(size), top_p=top_p) == left
