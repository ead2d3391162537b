"""Opening a Qwen checkpoint folder: what cannot be opened, and how that is said."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtp_decoder import CheckpointError
from mtp_decoder.qwen.load import load


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Callable[..., Path]) -> Path:
    """Return a copy of a checkpoint, to be taken apart."""
    return Path(shutil.copytree(checkpoint("gdn"), tmp_path / "gdn"))


def _edit_config(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def _refused(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as refusal:
        load(folder)
    assert folder.name in str(refusal.value)


def test_no_such_folder(tmp_path: Path) -> None:
    """A folder that is not there is named."""
    _refused(tmp_path / "nowhere", r"has no config\.json; give a checkpoint folder")


def test_no_config(folder: Path) -> None:
    """A folder without config.json is no checkpoint."""
    (folder / "config.json").unlink()
    _refused(folder, r"has no config\.json")


@pytest.mark.parametrize("text", ["{", "", "\xff"])
def test_a_broken_config(folder: Path, text: str) -> None:
    """A config.json that is no JSON is named."""
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    _refused(folder, r"config\.json is not JSON")


@pytest.mark.parametrize("text", ["[]", "3", "null"])
def test_a_config_that_is_no_object(folder: Path, text: str) -> None:
    """JSON that is no object is refused as the wrong content of that file."""
    (folder / "config.json").write_text(text)
    _refused(folder, r"config\.json")


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen4_exp"])
def test_another_family(folder: Path, family: str) -> None:
    """Another family is named beside the known ones."""
    _edit_config(folder, model_type=family)
    _refused(folder, f"model_type '{family}' is none of qwen3_5, qwen3_5_moe, qwen3_next")


def test_no_weights(folder: Path) -> None:
    """A folder without weights is no checkpoint."""
    (folder / "model.safetensors").unlink()
    _refused(folder, re.escape("has no model*.safetensors"))


def test_truncated_weights(folder: Path) -> None:
    """A file of weights that was cut off is named, wherever the cut is."""
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    _refused(folder, r"model\.safetensors has \d+ bytes, its header says \d+: it was cut short")
    file.write_bytes(whole[:1000])
    _refused(folder, r"model\.safetensors is no whole safetensors file")


def test_another_size(folder: Path) -> None:
    """Weights that do not fit the config are named, with both shapes."""
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["hidden_size"] = 64
    _edit_config(folder, text_config=config["text_config"])
    _refused(folder, r"embed_tokens\.weight is \(260, 32\), the config says \(260, 64\)$")


def test_an_incomplete_config(folder: Path) -> None:
    """A config without the text model's part is another model's: some tensors are named."""
    _edit_config(folder, text_config={})
    _refused(folder, r"it lacks model\.layers\.2\..* tensors\), and has model\.layers\.5\.")


@pytest.mark.parametrize("field", [{"num_attention_heads": 0}, {"hidden_size": "x"}])
def test_a_config_of_nonsense(folder: Path, field: dict[str, Any]) -> None:
    """What mlx-lm ends in with such fields is passed on in a line."""
    config = json.loads((folder / "config.json").read_text())
    _edit_config(folder, text_config={**config["text_config"], **field})
    _refused(folder, r"mlx-lm cannot load it: [^\n]+$")
