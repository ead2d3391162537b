"""Checkpoints: mlx-lm opens them and computes the same model.

mlx-lm's fused kernels are another arithmetic than the reference models' plain operations:
logits are compared within 1e-3, not in bits.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.utils import load_model

from reference_models.prompts import prompt_tokens
from tests.models.conftest import Zoo
from tests.models.helpers import number

WITH_CACHE = ("gdn", "gdn-moe", "gdn-next", "gdn-mtp2")
TOKENS = mx.array([prompt_tokens(24)])


@pytest.fixture(scope="module")
def opened(checkpoint: Callable[..., Path]) -> Callable[[str], Any]:
    """Return a function that opens a zoo model's checkpoint with mlx-lm."""
    return lambda name: load_model(checkpoint(name))[0]


def _agree(found: mx.array, expected: mx.array) -> None:
    assert number(mx.abs(found - expected).max()) < 1e-3
    assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()


@pytest.mark.parametrize("name", ["attn", *WITH_CACHE])
def test_a_whole_prompt(opened: Callable[[str], Any], zoo: Zoo, name: str) -> None:
    """mlx-lm's class of the family gives the logits of the reference model."""
    _agree(opened(name)(TOKENS), zoo(name)[0](TOKENS))


@pytest.mark.parametrize("name", WITH_CACHE)
def test_in_parts(opened: Callable[[str], Any], zoo: Zoo, name: str) -> None:
    """So it does part by part, with its own caches.

    Not of `attn`: without a recurrent layer mlx-lm 0.32.2 fails when it is given a cache.
    """
    theirs, (ours, _) = opened(name), zoo(name)
    caches = theirs.make_cache(), ours.make_cache()
    for start, end in ((0, 13), (13, 14), (14, 20), (20, 24)):
        part = TOKENS[:, start:end]
        _agree(theirs(part, caches[0]), ours(part, caches[1]))
