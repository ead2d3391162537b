"""Fixtures of the reference models' tests: zoo models, read from checkpoints of theirs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import mlx.core as mx
import pytest

from reference_models.checkpoint import read, write_zoo
from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead

mx.set_default_device(mx.cpu)

Zoo = Callable[..., tuple[HybridModel, MTPHead]]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function from a zoo model's name and dtype to its checkpoint folder."""
    root = tmp_path_factory.mktemp("checkpoints")

    @cache
    def folder(name: str, dtype: mx.Dtype = mx.float32) -> Path:
        return write_zoo(name, root / f"{name}-{dtype}", dtype)

    return folder


@pytest.fixture(scope="session")
def zoo(checkpoint: Callable[..., Path]) -> Zoo:
    """Return a function from a zoo model's name and dtype to its target and head."""

    @cache
    def models(name: str, dtype: mx.Dtype = mx.float32) -> tuple[HybridModel, MTPHead]:
        return read(checkpoint(name, dtype))

    return models
