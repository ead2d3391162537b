"""What the oracle's own tests share: a quiet transformers, and checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import mlx.core as mx
import pytest

from tests.oracle.__main__ import quiet
from tests.oracle.models import write_model

mx.set_default_device(mx.cpu)


def pytest_configure(config: pytest.Config) -> None:
    """PyTorch and transformers warn about themselves; that is not what is tested."""
    for module in ("torch", "transformers"):
        config.addinivalue_line("filterwarnings", f"ignore:::{module}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a model's name to its checkpoint folder."""
    root = tmp_path_factory.mktemp("oracle")
    return cache(lambda model: write_model(model, root / model))
