"""The shipped checkpoints are whole, open, and are as good as their papers say."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from reference_models.checkpoint import read, read_config
from reference_models.tokenizer import encode
from reference_models.training.recipe import RECIPES
from reference_models.training.ship import CURVE, MANIFEST, TRAINED, digest, held_out_losses
from reference_models.training.texts import FOLDER

LOSS_BOUND = 0.02
"""Nats a token by which another processor's rounding may move the loss of 512 tokens."""


def _manifest(name: str) -> dict[str, Any]:
    return json.loads((TRAINED / name / MANIFEST).read_text())


def _changed(folder: Path, recorded: dict[str, str]) -> list[str]:
    """Files that are missing, or not the recorded ones."""
    files = {name: folder / name for name in recorded}
    return [n for n, file in files.items() if not file.is_file() or digest(file) != recorded[n]]


@pytest.mark.parametrize("name", RECIPES)
def test_files(name: str) -> None:
    """Weights, config, tokenizer and curve are those the manifest was written for."""
    recorded = _manifest(name)["files"]
    assert {"model.safetensors", "config.json", "tokenizer.json", CURVE} <= set(recorded)
    assert _changed(TRAINED / name, recorded) == []


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    """One byte more, or a file less, is noticed."""
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    recorded = {name: digest(tmp_path / name) for name in "ab"}
    (tmp_path / "a").write_text("aa")
    (tmp_path / "b").unlink()
    assert _changed(tmp_path, recorded) == ["a", "b"]


@pytest.mark.parametrize("name", RECIPES)
def test_papers(name: str) -> None:
    """The manifest holds today's recipe and today's texts; the config is the recipe's."""
    manifest = _manifest(name)
    assert manifest["recipe"] == json.loads(json.dumps(asdict(RECIPES[name])))
    assert manifest["texts"] == json.loads((FOLDER / "texts.json").read_text())
    assert read_config(TRAINED / name) == RECIPES[name].config


@pytest.mark.parametrize("name", RECIPES)
def test_size(name: str) -> None:
    """A folder takes a few megabytes at most."""
    assert sum(file.stat().st_size for file in (TRAINED / name).iterdir()) < 3e6


@pytest.mark.parametrize("name", RECIPES)
def test_logits(name: str) -> None:
    """Logits of target and head are bfloat16 and finite, at the end of a text too."""
    target, head = read(TRAINED / name)
    tokens = mx.array([encode("    return x\n<|endoftext|>It was")])
    x = target.embed(tokens)
    for layer in target.layers:
        x = layer(x, tokens, layer.make_cache())
    drafts, _ = head(x[:, :-1], tokens[:, 1:], head.make_cache())
    for logits in (target.logits(x), drafts):
        assert logits.dtype == mx.bfloat16
        assert mx.isfinite(logits).all().item()


@pytest.mark.parametrize("name", RECIPES)
def test_held_out_loss(name: str) -> None:
    """On the excerpt of held-out text every loss is the recorded one."""
    recipe = RECIPES[name]
    found = held_out_losses(*read(TRAINED / name), recipe.head_depths)
    recorded = _manifest(name)["held_out"]
    assert found.keys() == recorded.keys()
    for text, losses in recorded.items():
        assert found[text] == pytest.approx(losses, abs=LOSS_BOUND)
        assert losses[0] < 1.6  # a byte of these texts chosen evenly would cost 5.6
