"""`python -m mtp_decoder generate` opens what the gate opens."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_decoder.__main__ import main
from reference_models.training.ship import TRAINED
from tests.gate.folders import converted
from tests.gate.test_opens import FOLDERS

LOADER = ("--loader", "reference_models.checkpoint:read")


def _tokens(capsys: pytest.CaptureFixture[str], folder: Path, k: int, *options: str) -> list[int]:
    capsys.readouterr()
    command = ["generate", "--model", str(folder), "--prompt", "def read", "--json"]
    numbers = ["--max-tokens", "10", "--num-draft-tokens", str(k)]
    assert main([*command, *numbers, *options]) == 0
    return json.loads(capsys.readouterr().out)["tokens"]


@pytest.mark.parametrize("name", FOLDERS)
def test_same_tokens(
    capsys: pytest.CaptureFixture[str], folders: Callable[[str], Path], name: str
) -> None:
    """Every kind of folder decodes, with drafts as without."""
    path = folders(name)
    assert _tokens(capsys, path, 3) == _tokens(capsys, path, 0)


@pytest.mark.parametrize(
    ("name", "same"),
    [("sharded", "plain"), ("mlx-layout", "plain"), ("qwen3_next-fused", "qwen3_next")],
)
def test_same_model(
    capsys: pytest.CaptureFixture[str], folders: Callable[[str], Path], name: str, same: str
) -> None:
    """In shards, in mlx's layout and with fused experts it is the model it was."""
    tokens = (_tokens(capsys, folders(folder), 2) for folder in (name, same))
    assert next(tokens) == next(tokens)


def test_with_a_loader(capsys: pytest.CaptureFixture[str]) -> None:
    """The trained model that no class of mlx-lm's covers decodes with a loader."""
    folder = TRAINED / "flash-next-bytes"
    assert _tokens(capsys, folder, 3, *LOADER) == _tokens(capsys, folder, 0, *LOADER)


def test_experts_of_a_head_beside(
    capsys: pytest.CaptureFixture[str], folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """A head in a file that the index does not list has its experts on disk there."""
    folder = converted(folders("qwen3_5_moe"), tmp_path / "converted")
    assert (folder / "model.safetensors.index.json").exists()
    offloaded = _tokens(capsys, folder, 3, "--expert-budget", "24K")
    assert offloaded == _tokens(capsys, folder, 3)
