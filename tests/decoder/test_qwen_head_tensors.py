"""The head of mlx-lm's models: every tensor is needed, in its shape, and no other."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_decoder import CheckpointError
from mtp_decoder.qwen.head import build_head
from mtp_decoder.qwen.load import Loaded
from reference_models.config import HybridConfig
from reference_models.mtp import MTPHead
from reference_models.zoo import config_of
from tests.models.helpers import load_file

MODELS = ("gdn", "gdn-moe", "gdn-mtp2")
Tensors = dict[str, mx.array]


def _names(config: HybridConfig) -> list[str]:
    return list(MTPHead.tensors(config))


CELLS = [(model, name) for model in MODELS for name in _names(config_of(model))]
EXPERTS = [f"{n}.{p}_proj.weight" for n in (0, 3, 5) for p in ("gate", "up", "down")]
NEXT_CELLS = [
    *(("gdn-next", n) for n in _names(config_of("gdn-next")) if ".experts." not in n),
    *(("gdn-next", f"layers.0.mlp.experts.{n}") for n in EXPERTS),
]


@pytest.fixture
def tensors(checkpoint: Callable[..., Path]) -> Callable[[str], Tensors]:
    """Return a function from a zoo model's name to its head's tensors, as stored."""

    def stored(name: str) -> Tensors:
        found, _ = load_file(checkpoint(name))
        return {n.removeprefix("mtp."): a for n, a in found.items() if n.startswith("mtp.")}

    return stored


def _refused(loaded: Loaded, stored: Tensors, name: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        build_head(loaded.target, stored, about_zero=True)
    assert f"mtp.{name}" in str(refusal.value)


@pytest.mark.parametrize(("model", "name"), [*CELLS, *NEXT_CELLS])
def test_a_missing_tensor(
    qwen: Callable[[str], Loaded], tensors: Callable[[str], Tensors], model: str, name: str
) -> None:
    """A head that lacks a tensor is refused with that tensor's name in the checkpoint."""
    stored = tensors(model)
    del stored[name]
    _refused(qwen(model), stored, name)


@pytest.mark.parametrize(("model", "name"), [*CELLS, *NEXT_CELLS])
def test_a_wrong_shape(
    qwen: Callable[[str], Loaded], tensors: Callable[[str], Tensors], model: str, name: str
) -> None:
    """A tensor of another shape is refused with its name in the checkpoint."""
    stored = tensors(model)
    stored[name] = stored[name][..., :-1]
    _refused(qwen(model), stored, name)


@pytest.mark.parametrize(
    "name", ["bogus.weight", "layers.0.bogus.weight", "layers.first.mlp.weight", "norm.bias"]
)
@pytest.mark.parametrize("model", ["gdn", "gdn-moe", "gdn-next"])
def test_an_unknown_tensor(
    qwen: Callable[[str], Loaded], tensors: Callable[[str], Tensors], model: str, name: str
) -> None:
    """A tensor that no head has is refused by its name."""
    stored = {**tensors(model), name: mx.zeros((4,))}
    _refused(qwen(model), stored, name)


def test_a_head_without_a_layer(
    qwen: Callable[[str], Loaded], tensors: Callable[[str], Tensors]
) -> None:
    """A head needs a layer."""
    stored = {n: a for n, a in tensors("gdn").items() if not n.startswith("layers.")}
    with pytest.raises(CheckpointError, match=r"MTP head has no layer \(mtp\.layers\.0"):
        build_head(qwen("gdn").target, stored, about_zero=True)
