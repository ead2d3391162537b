"""Opening a Qwen checkpoint folder: target, head, shards."""

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mtp_conformance.exactness import require_equal
from mtp_decoder import generate_step
from mtp_decoder.qwen.load import Loaded, load
from reference_models.zoo import config_of
from tests.decoder.helpers import PROMPT
from tests.models.helpers import load_file, save_file

MODELS = ("gdn", "gdn-moe", "gdn-next", "gdn-mtp2")


def _shard(folder: Path) -> None:
    """Split the one file of a folder into two with an index, as large checkpoints are."""
    stored, metadata = load_file(folder)
    tensors = dict(sorted(stored.items()))
    names = list(tensors)
    index: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        mx.save_safetensors(str(folder / file), {n: tensors[n] for n in part}, metadata)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("name", MODELS)
def test_the_head(qwen: Callable[[str], Loaded], name: str) -> None:
    """The head has the layers its tensors say, and shares the target's vocabulary."""
    head = qwen(name).head
    assert head is not None
    assert len(head.layers) == config_of(name).mtp_num_hidden_layers


@pytest.mark.parametrize("name", MODELS)
def test_shards(qwen: Callable[[str], Loaded], folder: Callable[[str], Path], name: str) -> None:
    """A head whose tensors are spread over shards is the head of the one file."""
    path = folder(name)
    _shard(path)
    sharded, whole = load(path).head, qwen(name).head
    assert sharded is not None and whole is not None
    found, expected = (dict(tree_flatten(head.parameters())) for head in (sharded, whole))
    require_equal(found, expected, what="the head of the one file")


@pytest.mark.parametrize("name", ["gdn", "gdn-next"])
def test_no_head(folder: Callable[[str], Path], name: str) -> None:
    """A folder without head tensors gives a target alone, which decodes without drafts."""
    path = folder(name)
    stored, metadata = load_file(path)
    save_file(path, {n: a for n, a in stored.items() if not n.startswith("mtp.")}, metadata)
    target, head = load(path)
    emitted = generate_step(PROMPT, target, num_draft_tokens=0, max_tokens=2)
    assert (head, len(list(emitted))) == (None, 2)


def test_a_path_as_text(checkpoint: Callable[..., Path]) -> None:
    """A folder can be named by a string."""
    assert load(str(checkpoint("gdn"))).head is not None
