"""Faults whose edit shows nowhere: why, as a fact about mlx and not as an opinion."""

import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from mtp_conformance.exactness import bits_equal
from mtp_decoder.experts import shards
from reference_models import checkpoint as checkpoints
from tests.faults.editing import edit


def test_a_pending_slice_keeps_its_array() -> None:
    """L13: a slice that nobody has evaluated is of the array as it was, whatever is assigned since.

    So storing one in place of a copy changes nothing, however late it is looked at.
    """
    cache: Any = KVCache()
    rows = mx.random.normal((1, 2, 5, 4), key=mx.random.key(0))
    cache.update_and_fetch(rows, rows)
    pending = cache.keys[..., :5, :]
    cache.trim(3)
    other = mx.random.normal((1, 2, 3, 4), key=mx.random.key(1))
    kept, _ = cache.update_and_fetch(other, other)
    mx.eval(kept)
    assert bits_equal(kept[..., 2:, :], other) is None
    assert bits_equal(pending, rows) is None


def test_assigning_in_place_reaches_who_shares_the_array() -> None:
    """What L11 and L12 seed: the object that is assigned into is shared, not its values."""
    array = mx.zeros((3,))
    shared, pending = array, array[:2]
    array[0] = 1.0
    assert shared[0].item() == 1.0
    assert pending[0].item() == 0.0


def test_a_shard_of_any_length_is_refused_by_mlx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to look at a file's length changes who refuses it, and not that it is named at once."""
    checkpoints.write_zoo("gdn-moe", tmp_path, mx.float32, 0)
    file = next(tmp_path.glob("*.safetensors"))
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(ValueError, match=f"{file.name} has .* it was cut short"):
        shards.read_header(0, file)
    edit(monkeypatch, shards.read_header, ("if size < due:", "if size < 0:"))
    assert shards.read_header(0, file)
    with pytest.raises(ValueError, match=f"{file.name} is no whole safetensors file"):
        checkpoints.read(tmp_path)
