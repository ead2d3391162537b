"""Fixtures: zoo models with their experts on disk, and one expert's size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtp_decoder.experts import (
    Eviction,
    ExpertStore,
    OffloadSettings,
    Shards,
    offload,
    stores_of,
)
from mtp_decoder.qwen.load import load
from reference_models.checkpoint import read


class Offloaded(NamedTuple):
    """A model whose experts are on disk, and its stores."""

    target: Any
    head: Any
    store: ExpertStore
    head_store: ExpertStore


def open_offloaded(
    folder: Path,
    slots: int,
    head_slots: int = 1,
    *,
    classes: bool = False,
    eviction: Eviction = Eviction.LFU,
) -> Offloaded:
    """Open a float32 zoo checkpoint with so many slots, as reference model or mlx-lm's class."""
    size = 3 * 16 * 32 * 4  # gate, up and down of the zoo
    settings = OffloadSettings(slots * size, head_slots * size, eviction)
    shards = Shards(folder)
    if classes:
        target, head = load(folder, settings)
        assert head is not None
    else:
        target, head = read(folder)
        offload(target, head, shards, settings)
    return Offloaded(target, head, _store(target.layers), _store(head.layers))


def _store(layers: Any) -> ExpertStore:
    (store,) = stores_of(layers)
    return store


@pytest.fixture
def offloaded(checkpoint: Callable[..., Path]) -> Callable[..., Offloaded]:
    """Return a function from a zoo model's name and numbers of slots to it with experts on disk."""

    def make(name: str, slots: int, head_slots: int = 1, **options: Any) -> Offloaded:
        return open_offloaded(checkpoint(name), slots, head_slots, **options)

    return make
