# pyright: reportMissingImports=false
# (PyTorch is in the oracle's environment alone)
"""A checkpoint is opened whole or not at all."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.oracle.hugging_face import open_folder

Folder = Callable[[str], Path]


def _changed(folder: Path, into: Path, name: str, new: str | None) -> Path:
    """A copy of a folder in which one tensor is called otherwise, or is missing."""
    shutil.copytree(folder, into)
    tensors = load_file(into / "model.safetensors")
    array = tensors.pop(name)
    if new is not None:
        tensors[new] = array
    save_file(tensors, into / "model.safetensors", {"format": "pt"})
    return into


@pytest.mark.parametrize("new", [None, "mtp.fc2.weight"])
def test_the_head(folder: Folder, tmp_path: Path, new: str | None) -> None:
    """A tensor of the head that is missing, or that nothing uses, is an error."""
    spoilt = _changed(folder("gdn"), tmp_path / "spoilt", "mtp.fc.weight", new)
    with pytest.raises(ValueError, match=r"missing \['fc\.weight'\]"):
        open_folder(spoilt, torch.float32)


def test_the_shipped_target(folder: Folder, tmp_path: Path) -> None:
    """So is one that transformers' own class misses."""
    name = "model.language_model.layers.0.linear_attn.A_log"
    spoilt = _changed(folder("gdn"), tmp_path / "spoilt", name, None)
    with pytest.raises(ValueError, match="A_log"):
        open_folder(spoilt, torch.float32)


def test_a_composed_target(folder: Folder, tmp_path: Path) -> None:
    """And one of a target that is put together."""
    name = "model.layers.1.ple.key_proj.weight"
    spoilt = _changed(folder("ple"), tmp_path / "spoilt", name, "model.layers.1.ple.key.weight")
    with pytest.raises(ValueError, match=r"ple\.key_proj"):
        open_folder(spoilt, torch.float32)
