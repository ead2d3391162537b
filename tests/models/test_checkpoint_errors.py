"""Checkpoints: what cannot be read, and how that is said."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from reference_models.checkpoint import CheckpointError, read
from tests.models.helpers import load_file, save_file


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that copies a zoo model's checkpoint, to be taken apart."""

    def copy(name: str = "gdn") -> Path:
        return Path(shutil.copytree(checkpoint(name), tmp_path / name))

    return copy


def _edit_tensors(folder: Path, change: Callable[[dict[str, mx.array]], object]) -> None:
    tensors, metadata = load_file(folder)
    change(tensors)
    save_file(folder, tensors, metadata)


def _edit_config(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    document = json.loads(file.read_text())
    document["text_config"] |= fields
    file.write_text(json.dumps(document))


def _refused(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file(folder: Callable[..., Path], file: str) -> None:
    """A missing file is named."""
    path = folder()
    (path / file).unlink()
    _refused(path, re.escape(f"{path} has no {file}"))


def test_a_missing_folder(tmp_path: Path) -> None:
    """A missing folder is one without a config."""
    _refused(tmp_path / "nowhere", r"nowhere has no config\.json")


@pytest.mark.parametrize(
    ("model", "stored", "named"),
    [
        ("gdn", "lm_head.weight", "lm_head.weight"),
        ("gdn", "mtp.fc.weight", "mtp.fc.weight"),
        (
            "gdn",
            "model.language_model.layers.1.linear_attn.A_log",
            "model.layers.1.linear_attn.A_log",
        ),
        ("window", "model.layers.0.self_attn.q_norm.weight", "self_attn.q_norm.weight"),
        ("gdn-next", "model.layers.0.linear_attn.in_proj_qkvz.weight", "layers.0.linear_attn.in_p"),
        ("gdn-next", "model.layers.0.linear_attn.in_proj_ba.weight", "layers.0.linear_attn.in_p"),
        ("gdn-next", "model.layers.2.mlp.experts.0.gate_proj.weight", "layers.2.mlp.experts"),
        ("gdn-next", "model.layers.2.mlp.experts.3.up_proj.weight", "layers.2.mlp.experts"),
        (
            "flash-next",
            "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_2.weight",
            "layers.1.ple.ple_embedding.ngram_embedding",
        ),
    ],
)
def test_a_missing_tensor(folder: Callable[..., Path], model: str, stored: str, named: str) -> None:
    """A missing tensor is named, in fused and sharded layouts too."""
    path = folder(model)
    _edit_tensors(path, lambda tensors: tensors.pop(stored))
    _refused(path, re.escape(named))


@pytest.mark.parametrize(
    ("model", "stored", "named"),
    [
        ("gdn", "mtp.fc.weight", "mtp.fc.weight"),
        ("gdn-moe", "mtp.layers.0.mlp.experts.down_proj", "mtp.layers.0.mlp.experts.down_proj"),
        ("gdn-next", "model.layers.0.linear_attn.in_proj_qkvz.weight", "layers.0.linear_attn.in_p"),
        ("gdn-next", "model.layers.2.mlp.experts.3.up_proj.weight", "layers.2.mlp.experts"),
    ],
)
def test_a_wrong_shape(folder: Callable[..., Path], model: str, stored: str, named: str) -> None:
    """A tensor of another shape is named, in fused layouts too."""
    path = folder(model)
    _edit_tensors(path, lambda tensors: tensors.update({stored: tensors[stored][:-1]}))
    _refused(path, re.escape(named))


def test_the_shapes_of_both(folder: Callable[..., Path]) -> None:
    """A wrong shape is reported with the one the config asks for."""
    path = folder()
    _edit_tensors(path, lambda tensors: tensors.update({"lm_head.weight": mx.zeros((3, 32))}))
    _refused(path, r"lm_head\.weight is \(3, 32\), the config says \(260, 32\)")


@pytest.mark.parametrize("text", ["{", "", "[]", "3", "\xff"])
def test_a_broken_config(folder: Callable[..., Path], text: str) -> None:
    """A config.json that is no JSON object describes no model."""
    path = folder()
    (path / "config.json").write_bytes(text.encode("latin-1"))
    _refused(path, r"config\.json describes no reference model")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer_types": ["banded_attention"]}, "layer_types: 'banded_attention' is none of"),
        ({"layer_types": []}, "layer_types: a model needs at least one layer"),
        ({"num_key_value_heads": 3}, "num_attention_heads must be a multiple"),
        ({"head_dim": None}, "head_dim"),
    ],
)
def test_an_impossible_config(
    folder: Callable[..., Path], fields: dict[str, Any], message: str
) -> None:
    """A config no model can have is refused by the field's name."""
    path = folder()
    _edit_config(path, **fields)
    _refused(path, rf"config\.json describes no reference model: .*{message}")


def test_a_config_without_its_family(folder: Callable[..., Path]) -> None:
    """A config without model_type is refused by that name."""
    path = folder()
    (path / "config.json").write_text('{"text_config": {}}')
    _refused(path, r"describes no reference model: .*model_type")


def test_truncated_weights(folder: Callable[..., Path]) -> None:
    """A file of weights that was cut off is named."""
    path = folder()
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    _refused(path, r"model\.safetensors")
