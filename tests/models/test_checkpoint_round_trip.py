"""Checkpoints: what is written is read."""

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from reference_models import checkpoint as checkpoints
from reference_models.checkpoint import read, read_config, write
from reference_models.hybrid import HybridModel
from reference_models.weights import Fill, Weights
from reference_models.zoo import ZOO, config_of, random_weights, tensors_of
from tests.models.helpers import load_file

DTYPES = [mx.float32, mx.bfloat16]


@pytest.fixture
def read_weights(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], dict[str, mx.array]]:
    """Return a function that reads a folder and gives the weights the model was made from."""
    views: list[Weights] = []
    whole = HybridModel.__init__

    def watch(self: HybridModel, config: object, weights: Weights) -> None:
        views.append(weights)
        # A wrapper has no types of its own.
        whole(self, config, weights)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(HybridModel, "__init__", watch)

    def weights(folder: Path) -> dict[str, mx.array]:
        target, _ = read(folder)
        return {name: views[-1][name] for name in tensors_of(target.config)}

    return weights


def _as_stored(name: str, dtype: mx.Dtype) -> dict[str, mx.array]:
    """The weights to expect: where norms are stored about one, the addition rounds them."""
    weights = random_weights(name, dtype)
    if name not in ("attn", "attn-ties"):
        return weights
    about_zero = {n for n, t in tensors_of(ZOO[name]).items() if t.fill is Fill.NORM_ABOUT_ZERO}
    return {n: a + 1.0 - 1.0 if n in about_zero else a for n, a in weights.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ZOO)
def test_weights(
    checkpoint: Callable[..., Path],
    read_weights: Callable[[Path], dict[str, mx.array]],
    name: str,
    dtype: mx.Dtype,
) -> None:
    """Every weight comes back bit for bit, however the family fuses, nests or shards it."""
    found = read_weights(checkpoint(name, dtype))
    require_equal(found, _as_stored(name, dtype), what="the weights that were written")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ZOO)
def test_writing_what_was_read(
    checkpoint: Callable[..., Path],
    read_weights: Callable[[Path], dict[str, mx.array]],
    tmp_path: Path,
    name: str,
    dtype: mx.Dtype,
) -> None:
    """What was read and is written again is the same file's tensors, shifted norms included."""
    first = checkpoint(name, dtype)
    write(read_config(first), read_weights(first), tmp_path)
    files = [load_file(folder)[0] for folder in (tmp_path, first)]
    require_equal(files[0], files[1], what="the first file")
    require_equal(read_weights(tmp_path), read_weights(first), what="the first reading")


@pytest.mark.parametrize("name", ZOO)
def test_config(checkpoint: Callable[..., Path], name: str) -> None:
    """The config comes back as it was."""
    assert read_config(checkpoint(name)) == config_of(name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_dtype_is_written_down(checkpoint: Callable[..., Path], dtype: mx.Dtype) -> None:
    """config.json names the dtype of the weights."""
    document = json.loads((checkpoint("gdn", dtype) / "config.json").read_text())
    assert document["text_config"]["dtype"] == str(dtype).removeprefix("mlx.core.")


LAYOUTS = {
    "gdn": "model.language_model.layers.0.linear_attn.in_proj_qkv.weight",
    "gdn-moe": "model.language_model.layers.0.mlp.experts.gate_up_proj",
    "gdn-next": "model.layers.0.mlp.experts.5.up_proj.weight",
    "window": "model.layers.0.self_attn.q_proj.weight",
    "flash-next": (
        "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_3.weight"
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(checkpoint: Callable[..., Path], name: str) -> None:
    """Tensors are named as the family's real checkpoints name them, the head's `mtp.*`."""
    stored = load_file(checkpoint(name))[0]
    assert LAYOUTS[name] in stored
    assert any(tensor.startswith("mtp.") for tensor in stored)


def test_fused_rows(checkpoint: Callable[..., Path]) -> None:
    """qwen3_next fuses q, k, v and z by key head: rows of one head lie together."""
    weights = random_weights("gdn-next")
    stored = load_file(checkpoint("gdn-next"))[0]
    at = "model.layers.0.linear_attn."
    qkv, z = weights[f"{at}in_proj_qkv.weight"], weights[f"{at}in_proj_z.weight"]
    # Two key heads of 8 rows, four value heads of 8 rows, two of these to a key head.
    parts = [qkv[8:16], qkv[24:32], qkv[48:64], z[16:32]]
    found = {"second head": stored[f"{at}in_proj_qkvz.weight"][48:]}
    require_equal(found, {"second head": mx.concatenate(parts)}, what="the rows by head")


def test_hash_constants(checkpoint: Callable[..., Path]) -> None:
    """qwen4_exp stores the hash's constants beside the table, as 64-bit integers."""
    stored = load_file(checkpoint("flash-next"))[0]
    constants = {n.rpartition(".")[2]: a for n, a in stored.items() if a.dtype == mx.int64}
    assert {name: array.size for name, array in constants.items()} == {
        "layer_multipliers": 3,
        "ngram_heads_vocab_sizes": 8,
        "ngram_heads_offsets": 8,
    }


def test_the_folder_is_made(tmp_path: Path) -> None:
    """Folders on the way are made, and the folder is returned."""
    folder = tmp_path / "a" / "b"
    assert checkpoints.write_zoo("attn", folder) == folder
    assert (folder / "model.safetensors").is_file()
