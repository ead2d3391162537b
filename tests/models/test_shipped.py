"""Copies of the trained checkpoints, as they are and in float32."""

from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from reference_models.checkpoint import read_config
from reference_models.config import ConfigError
from reference_models.shipped import TRAINED, copy_shipped, shipped
from reference_models.training.recipe import RECIPES
from tests.models.helpers import load_file


def test_every_recipe_is_shipped() -> None:
    """There is a checkpoint for every recipe, and none without."""
    assert set(shipped()) == set(RECIPES)


@pytest.mark.parametrize("name", shipped())
def test_as_it_is(tmp_path: Path, name: str) -> None:
    """A copy in bfloat16 is the folder itself, file by file."""
    copy = copy_shipped(name, tmp_path / "copy")
    files = {file.name: file.read_bytes() for file in (TRAINED / name).iterdir()}
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == files


@pytest.mark.parametrize("name", shipped())
def test_in_float32(tmp_path: Path, name: str) -> None:
    """In float32 every number is the same one, and only bfloat16 has become wider."""
    wide, metadata = load_file(copy_shipped(name, tmp_path / "wide", mx.float32))
    due, due_metadata = load_file(TRAINED / name)
    assert metadata == due_metadata
    assert not [n for n, a in wide.items() if a.dtype == mx.bfloat16]
    narrow = {n: a.astype(due[n].dtype) for n, a in wide.items()}
    require_equal(narrow, due, what="the shipped weights")
    assert read_config(tmp_path / "wide") == read_config(TRAINED / name)
    assert '"dtype": "float32"' in (tmp_path / "wide" / "config.json").read_text()


def test_refused(tmp_path: Path) -> None:
    """A name that nothing has, and a type that changes the numbers, are refused."""
    with pytest.raises(ConfigError, match="no trained model 'gdn'; there are flash-next-bytes, "):
        copy_shipped("gdn", tmp_path / "copy")
    with pytest.raises(ConfigError, match="trained models are bfloat16, or float32"):
        copy_shipped(shipped()[0], tmp_path / "copy", mx.float16)
    assert not (tmp_path / "copy").exists()
