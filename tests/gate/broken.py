"""Checkpoint folders broken in one way each, and what is to be said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from tests.gate.folders import (
    QWEN,
    Tensors,
    converted,
    copied,
    edited,
    in_mlx_layout,
    is_head,
    sharded,
    tensors_of,
)

INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"


@dataclass(frozen=True)
class Broken:
    """How a folder comes about, and a pattern that what is said of it matches."""

    make: Callable[[Path], Path]
    said: str


def _plain(change: Callable[[Tensors], object]) -> Callable[[Path], Path]:
    return lambda folder: edited(copied(QWEN, folder), change)


def _without(*ends: str) -> Callable[[Path], Path]:
    def drop(tensors: Tensors) -> None:
        for name in [n for n in tensors if is_head(n) and n.endswith(ends)]:
            del tensors[name]

    return _plain(drop)


def _narrow(name: str) -> Callable[[Path], Path]:
    def cut(tensors: Tensors) -> None:
        tensors[name] = mx.contiguous(tensors[name][:, :-1])

    return _plain(cut)


def shifted(of_head: bool, by: float, tensors: Tensors) -> None:
    """Move the norms of the head or of the trunk."""
    for name, array in tensors.items():
        norm = "norm" in name and array.ndim == 1 and "linear_attn" not in name
        if norm and is_head(name) == of_head:
            tensors[name] = array + by


def doubled(folder: Path) -> Path:
    """The trunk's norms with one added already, in a layout to which one is added."""
    return edited(copied(QWEN, folder), lambda tensors: shifted(False, 1.0, tensors))


def doubled_head(folder: Path) -> Path:
    """The head's norms likewise."""
    return edited(copied(QWEN, folder), lambda tensors: shifted(True, 1.0, tensors))


def _never_shifted(folder: Path) -> Path:
    return edited(in_mlx_layout(QWEN, folder), lambda tensors: shifted(False, -1.0, tensors))


def _mislabelled_head(folder: Path) -> Path:
    file = converted(QWEN, folder, 8) / "mtp.safetensors"
    mx.save_safetensors(str(file), tensors_of(file)[0], {"format": "mlx"})
    return folder


def _head_twice(folder: Path) -> Path:
    head = {n: a for n, a in tensors_of(QWEN / "model.safetensors")[0].items() if is_head(n)}
    mx.save_safetensors(str(copied(QWEN, folder) / "mtp.safetensors"), head)
    return folder


def _odd_scales(folder: Path) -> Path:
    def cut(tensors: Tensors) -> None:
        tensors["mtp.fc.scales"] = tensors["mtp.fc.scales"][:, :-1]

    return edited(converted(QWEN, folder, 8, head_bits=8), cut, "mtp.safetensors")


def _without_packed_weight(folder: Path) -> Path:
    def drop(tensors: Tensors) -> None:
        del tensors["mtp.fc.weight"]

    return edited(converted(QWEN, folder, 8, head_bits=8), drop, "mtp.safetensors")


def _two_layers(folder: Path) -> Path:
    file = copied(QWEN, folder) / "config.json"
    config = json.loads(file.read_text())
    config["text_config"]["mtp_num_hidden_layers"] = 2
    file.write_text(json.dumps(config))
    return folder


def _sharded(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        change(sharded(copied(QWEN, folder)))
        return folder

    return make


def _cut(file: Path, count: int) -> None:
    file.write_bytes(file.read_bytes()[:-count])


def _cut_side_file(folder: Path) -> Path:
    _cut(converted(QWEN, folder, 8) / "mtp.safetensors", 1)
    return folder


def _moved_in_index(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = "model-00001-of-00003.safetensors"
    index["weight_map"]["mtp.fc.weight"] = "model-00001-of-00003.safetensors"
    (folder / INDEX).write_text(json.dumps(index))


def _drop_last_layer(tensors: Tensors) -> None:
    for name in [name for name in tensors if ".layers.3." in name]:
        del tensors[name]


def _one_more(tensors: Tensors) -> None:
    tensors["lm_head.bias"] = mx.zeros(260, mx.bfloat16)


def _narrow_scales(folder: Path) -> Path:
    def cut(tensors: Tensors) -> None:
        name = next(name for name in tensors if name.endswith("lm_head.scales"))
        tensors[name] = mx.contiguous(tensors[name][:-1])

    return edited(converted(QWEN, folder, 4), cut)


def _quantised_in_secret(folder: Path) -> Path:
    file = converted(QWEN, folder, 4) / "config.json"
    config = json.loads(file.read_text())
    found = {name: value for name, value in config.items() if not name.startswith("quantization")}
    file.write_text(json.dumps(found))
    return folder


def _trunk_twice(folder: Path) -> Path:
    tensors = tensors_of(copied(QWEN, folder) / "model.safetensors")[0]
    trunk = {name: array for name, array in tensors.items() if not is_head(name)}
    mx.save_safetensors(str(folder / "model-old.safetensors"), trunk)
    return folder


def _pointer(folder: Path) -> Path:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 2091464\n"
    (copied(QWEN, folder) / "model.safetensors").write_text(text)
    return folder


def _dangling(folder: Path) -> Path:
    (copied(QWEN, folder) / "mtp.safetensors").symlink_to("../blobs/nowhere")
    return folder


BROKEN = {
    "half a head": Broken(
        _without("fc.weight", "q_proj.weight"),
        r"half an MTP head: it lacks mtp\.fc\.weight, mtp\.layers\.0\.self_attn\.q_proj\.weight "
        r"\(2 of its 15 tensors\)",
    ),
    "a layer short": Broken(
        _two_layers, r"half an MTP head: it has 1 of 2 layers; mtp\.layers\.1\.\* is missing"
    ),
    "a head without a packed weight": Broken(
        _without_packed_weight, r"half an MTP head: it lacks mtp\.fc\.weight"
    ),
    "a narrow head": Broken(
        _narrow("mtp.fc.weight"), r"mtp\.fc\.weight is \(128, 255\), the config says \(128, 256\)"
    ),
    "odd scales": Broken(_odd_scales, r"mtp\.fc is no quantised matrix of 256 columns"),
    "a narrow trunk": Broken(
        _narrow("lm_head.weight"),
        r": lm_head\.weight is \(260, 127\), the config says \(260, 128\)",
    ),
    "a trunk cut short": Broken(
        _plain(_drop_last_layer),
        r": it lacks model\.layers\.3\..* and 8 more \(11 of its 56 tensors\); fetch or",
    ),
    "a trunk with more than its config": Broken(
        _plain(_one_more), r": it has lm_head\.bias, which the config has no place for; fetch"
    ),
    "a narrow quantised trunk": Broken(
        _narrow_scales,
        r": lm_head\.weight is \(260, 16\), its scales \(259, 2\): no quantised matrix of",
    ),
    "quantised, and the config does not say so": Broken(
        _quantised_in_secret, r"its tensors are quantised, and config\.json has no .quantization."
    ),
    "a trunk twice": Broken(
        _trunk_twice,
        r"has \S+ twice, in model-old\.safetensors and in model\.safetensors: two conversions",
    ),
    "a pointer": Broken(_pointer, r"model\.safetensors is a Git LFS pointer .*git lfs pull"),
    "a dangling link": Broken(
        _dangling, r"mtp\.safetensors cannot be read: No such file or directory"
    ),
    "a doubled shift": Broken(
        doubled,
        r"the norm weights contradict each other: convolutions are stored channels first, as "
        r"Hugging Face does, so they would be stored about zero, and their median is \d\.\d\d, "
        r"which is about one\. .*--norms about-zero or --norms about-one",
    ),
    "a shift left out": Broken(
        _never_shifted,
        r"convolutions are not stored channels first.* stored about one, and their median is "
        r"-?0\.\d\d, which is about zero",
    ),
    "a doubled shift in the head": Broken(
        doubled_head,
        r"the MTP head's norm weights contradict each other: it lies among the trunk's tensors, "
        r"where convolutions .*--head-norms about-zero or --head-norms about-one",
    ),
    "a head of another format": Broken(
        _mislabelled_head, r"mtp\.safetensors says that its format is mlx, so .* about zero"
    ),
    "a head twice": Broken(
        _head_twice, r"has mtp\.\S+ twice, in model\.safetensors and in mtp\.safetensors"
    ),
    "a truncated shard": Broken(
        _sharded(lambda folder: _cut(folder / SHARD, 100)),
        rf"{SHARD} has \d+ bytes, its header says \d+: it was cut short",
    ),
    "a truncated side file": Broken(
        _cut_side_file, r"mtp\.safetensors has \d+ bytes, its header says \d+: it was cut short"
    ),
    "a missing shard": Broken(
        _sharded(lambda folder: (folder / SHARD).unlink()), rf"lacks {SHARD}, which {INDEX} names"
    ),
    "no JSON in the index": Broken(
        _sharded(lambda folder: (folder / INDEX).write_text("{")),
        rf"{INDEX} cannot be read as an index: JSONDecodeError",
    ),
    "no map in the index": Broken(
        _sharded(lambda folder: (folder / INDEX).write_text("[]")),
        rf"{INDEX} cannot be read as an index: TypeError",
    ),
    "a wrong index": Broken(
        _sharded(_moved_in_index),
        rf"model-00001-of-00003\.safetensors has no (lm_head|mtp\.fc)\.weight, which {INDEX}",
    ),
}
"""By what is wrong with it."""
