"""Writing and reading ordinary checkpoint folders.

A folder holds `config.json`, `model.safetensors` and the tokenizer. Layouts are those of
the families' real checkpoints: qwen3_5, qwen3_5_moe and qwen4_exp nest the text model
(`text_config`, `model.language_model.*`), qwen3_next is flat, fuses q, k, v and z by key
head and stores one tensor an expert, qwen4_exp stores the n-gram table in shards with the
hash's constants beside it; the head's tensors are `mtp.*` in all of them. The metadata key
`format` says `pt` for Hugging Face's layout and `mlx` for mlx's, as in real checkpoints.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np

from reference_models.config import FULL, INDEXED, LINEAR, SLIDING, HybridConfig
from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead
from reference_models.ple import NGramHash, shard_names
from reference_models.tokenizer import tokenizer_files
from reference_models.weights import Fill, Weights
from reference_models.zoo import config_of, random_weights, tensors_of

_NESTED = {"qwen3_5", "qwen3_5_moe", "qwen4_exp"}
_ARCHITECTURES = {
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen4_exp": "Qwen4ExpForConditionalGeneration",
}
_TABLE = "ple_embedding.ngram_embedding.weight"


class CheckpointError(ValueError):
    """A folder that is no checkpoint of a reference model; the message says what is wrong."""


def write_zoo(name: str, folder: Path, dtype: mx.Dtype = mx.float32, seed: int = 0) -> Path:
    """Write a zoo model with its random weights into `folder` and return it."""
    return write(config_of(name), random_weights(name, dtype, seed), folder)


def write(config: HybridConfig, weights: dict[str, mx.array], folder: Path) -> Path:
    """Write config, weights and tokenizer into `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = str(weights["model.embed_tokens.weight"].dtype).removeprefix("mlx.core.")
    documents = {"config.json": _document(config, dtype), **tokenizer_files()}
    for file, content in documents.items():
        (folder / file).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    layout = "mlx" if _about_one(config) else "pt"
    stored = _shift_norms(config, weights, 1.0) if layout == "mlx" else weights
    mx.save_safetensors(
        str(folder / "model.safetensors"), _to_disk(config, stored), {"format": layout}
    )
    return folder


def read(folder: Path) -> tuple[HybridModel, MTPHead]:
    """Read target and head from a folder `write` made.

    Weights are in memory then, but for those of routed experts: mlx reads them from the file
    when they are first used, or never where something else takes their place.

    Raises:
        CheckpointError: a file or tensor is missing, or a shape is not what the config says.
    """
    config = read_config(folder)
    file = folder / "model.safetensors"
    if not file.is_file():
        raise CheckpointError(f"{folder} has no model.safetensors")
    try:
        loaded = mx.load(str(file), return_metadata=True)
    except RuntimeError as error:
        raise CheckpointError(f"{file} is no whole safetensors file: {error}") from error
    stored, metadata = cast("tuple[dict[str, mx.array], dict[str, str]]", loaded)
    _check(config, stored, file)
    weights = _from_disk(config, stored)
    if metadata.get("format") == "mlx":
        weights = _shift_norms(config, weights, -1.0)
    mx.eval([array for name, array in weights.items() if ".experts." not in name])
    view = Weights(weights)
    target = HybridModel(config, view)
    return target, MTPHead(config, view.at("mtp"), target)


def read_config(folder: Path) -> HybridConfig:
    """Read `config.json`, nested or flat.

    Raises:
        CheckpointError: the file is missing, no JSON, or no reference model's.
    """
    file = folder / "config.json"
    try:
        document = json.loads(file.read_text())
        flat = {**document.get("text_config", {}), "model_type": document["model_type"]}
        flat = {**{k: v for k, v in document.items() if k != "text_config"}, **flat}
        flat |= {k: v for k, v in flat.get("rope_parameters", {}).items() if k != "rope_type"}
        config = HybridConfig.from_dict(flat)
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no config.json") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} describes no reference model: {error}") from error
    if config.model_type == "qwen4_exp":
        kinds = tuple(INDEXED if kind == FULL else kind for kind in config.layer_types)
        return replace(config, layer_types=kinds)
    return config


def _about_one(config: HybridConfig) -> bool:
    """Whether the folder stores norms about one (mlx's layout) rather than about zero.

    mlx-lm recognises Hugging Face's layout of these families by the shape of a convolution
    weight; where no layer has one, only its own layout is read right.
    """
    return config.model_type == "qwen3_5" and LINEAR not in config.layer_types


def _shift_norms(
    config: HybridConfig, weights: dict[str, mx.array], by: float
) -> dict[str, mx.array]:
    """Add to every norm stored about zero; back and forth is exact, being near one."""
    tensors = tensors_of(config)
    return {
        name: array + by if tensors[name].fill is Fill.NORM_ABOUT_ZERO else array
        for name, array in weights.items()
    }


def _check(config: HybridConfig, stored: dict[str, mx.array], file: Path) -> None:
    """Compare names and shapes with what `write` stores for this config."""
    blank = {name: mx.zeros(tensor.shape) for name, tensor in tensors_of(config).items()}
    for name, due in _to_disk(config, blank).items():
        if name not in stored:
            raise CheckpointError(f"{file} lacks the tensor {name}")
        if stored[name].shape != due.shape:
            found = stored[name].shape
            raise CheckpointError(f"{file}: {name} is {found}, the config says {due.shape}")


def _document(config: HybridConfig, dtype: str) -> dict[str, Any]:
    """The content of config.json."""
    foreign = _foreign_fields(config)
    flat = {name: value for name, value in config.to_dict().items() if name not in foreign}
    flat["num_hidden_layers"] = config.num_hidden_layers
    flat["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": flat.pop("rope_theta"),
        "partial_rotary_factor": flat.pop("partial_rotary_factor"),
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    }
    flat |= {"dtype": dtype, "max_position_embeddings": 4096, "hidden_act": "silu"}
    flat |= {"attention_bias": False, "attention_dropout": 0.0}
    full = FULL if FULL in config.layer_types else INDEXED
    if full in config.layer_types:
        flat["full_attention_interval"] = config.layer_types.index(full) + 1
    if config.model_type == "qwen3_next":
        flat |= {
            "rope_theta": config.rope_theta,
            "partial_rotary_factor": config.partial_rotary_factor,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
        del flat["rope_parameters"]
    if config.model_type == "qwen4_exp":
        flat["layer_types"] = [FULL if k == INDEXED else k for k in config.layer_types]
    if config.model_type not in _NESTED:
        return {**_architecture(config), **flat}
    outer = {"eos_token_id": config.eos_token_id, "tie_word_embeddings": config.tie_word_embeddings}
    text = {**flat, "model_type": f"{config.model_type}_text"}
    names = {"model_type": config.model_type, **_architecture(config)}
    return {**names, **outer, "text_config": text}


def _architecture(config: HybridConfig) -> dict[str, list[str]]:
    """Hugging Face's class name of the family, where it has one."""
    name = _ARCHITECTURES.get(config.model_type)
    return {"architectures": [name]} if name else {}


def _foreign_fields(config: HybridConfig) -> set[str]:
    """Fields of mechanisms the model does not have."""
    off: list[str] = []
    if not config.indexer_n_heads:
        off += ["indexer_"]
    if not config.ple_layer_ids:
        off += ["ple_", "ngram_", "heads_per_ngram", "make_ngram", "split_ngram", "seed"]
    if config.hc_count == 1:
        off += ["hc_"]
    if SLIDING not in config.layer_types:
        off += ["sliding_"]
    if not config.num_experts:
        off += ["num_experts", "norm_topk_prob", "moe_", "shared_expert_"]
    if config.output_gate_type == "silu":
        off += ["output_gate_type"]
    return {name for name in config.to_dict() if name.startswith(tuple(off))}


def _to_disk(config: HybridConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    stored = dict(weights)
    if config.model_type == "qwen3_next":
        stored = _fuse_next(config, stored)
    if config.model_type == "qwen4_exp":
        stored = _shard_tables(config, stored)
    if config.model_type in _NESTED:
        return {_nest(name): array for name, array in stored.items()}
    return stored


def _from_disk(config: HybridConfig, stored: dict[str, mx.array]) -> dict[str, mx.array]:
    names = {name.replace("model.language_model.", "model.", 1): name for name in stored}
    weights = {short: stored[name] for short, name in names.items()}
    if config.model_type == "qwen3_next":
        weights = _split_next(config, weights)
    if config.model_type == "qwen4_exp":
        weights = _join_tables(config, weights)
    return weights


def _nest(name: str) -> str:
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def _ple_prefixes(config: HybridConfig) -> list[str]:
    return [f"model.layers.{layer_id - 1}.ple." for layer_id in config.ple_layer_ids]


def _shard_tables(config: HybridConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    for index, prefix in enumerate(_ple_prefixes(config)):
        table = weights.pop(prefix + _TABLE)
        parts = mx.split(table, config.split_ngram_parts)
        weights |= {prefix + n: p for n, p in zip(shard_names(config), parts, strict=True)}
        hashed = NGramHash(config, index)
        constants = {
            "layer_multipliers": hashed.multipliers,
            "ngram_heads_vocab_sizes": hashed.sizes,
            "ngram_heads_offsets": hashed.offsets,
        }
        for name, values in constants.items():
            weights[f"{prefix}ple_embedding.{name}"] = mx.array(np.array(values, np.int64))
    return weights


def _join_tables(config: HybridConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    for prefix in _ple_prefixes(config):
        names = [prefix + name for name in shard_names(config)]
        if all(name in weights for name in names):
            weights[prefix + _TABLE] = mx.concatenate([weights.pop(name) for name in names])
    return weights


def _next_heads(config: HybridConfig) -> tuple[int, list[int]]:
    """Key heads, and rows of q, k, v, z one of them owns in the fused projection."""
    keys, ratio = config.linear_num_key_heads, config.linear_num_value_heads
    own = ratio // keys * config.linear_value_head_dim
    return keys, [config.linear_key_head_dim] * 2 + [own, own]


def _fuse_next(config: HybridConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """To qwen3_next's layout: projections fused by key head, experts one by one."""
    keys, rows = _next_heads(config)
    hidden = config.hidden_size
    totals = [keys * size for size in rows]
    for index, kind in enumerate(config.layer_types):
        if kind == LINEAR:
            at = f"model.layers.{index}.linear_attn."
            qkv = weights.pop(f"{at}in_proj_qkv.weight")
            parts = list(mx.split(qkv, [totals[0], totals[0] + totals[1]]))
            parts.append(weights.pop(f"{at}in_proj_z.weight"))
            by_head = [p.reshape(keys, -1, hidden) for p in parts]
            weights[f"{at}in_proj_qkvz.weight"] = mx.concatenate(by_head, axis=1).reshape(
                -1, hidden
            )
            pair = [weights.pop(f"{at}in_proj_{n}.weight").reshape(keys, -1, hidden) for n in "ba"]
            weights[f"{at}in_proj_ba.weight"] = mx.concatenate(pair, axis=1).reshape(-1, hidden)
    for name in [n for n in weights if n.endswith("experts.gate_up_proj")]:
        base = name.removesuffix("gate_up_proj")
        gate, up = mx.split(weights.pop(name), 2, axis=1)
        down = weights.pop(f"{base}down_proj")
        for part, stack in {"gate_proj": gate, "up_proj": up, "down_proj": down}.items():
            weights |= {f"{base}{e}.{part}.weight": stack[e] for e in range(config.num_experts)}
    return weights


def _split_next(config: HybridConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Back from qwen3_next's layout."""
    keys, rows = _next_heads(config)
    hidden = config.hidden_size
    bounds = [sum(rows[: i + 1]) for i in range(3)]
    for name in [n for n in weights if n.endswith("in_proj_qkvz.weight")]:
        at = name.removesuffix("in_proj_qkvz.weight")
        q, k, v, z = mx.split(weights.pop(name).reshape(keys, -1, hidden), bounds, axis=1)
        flat = [part.reshape(-1, hidden) for part in (q, k, v)]
        weights[f"{at}in_proj_qkv.weight"] = mx.concatenate(flat)
        weights[f"{at}in_proj_z.weight"] = z.reshape(-1, hidden)
        pair = mx.split(weights.pop(f"{at}in_proj_ba.weight").reshape(keys, -1, hidden), 2, axis=1)
        for letter, part in zip("ba", pair, strict=True):
            weights[f"{at}in_proj_{letter}.weight"] = part.reshape(-1, hidden)
    for name in [n for n in weights if n.endswith("experts.0.gate_proj.weight")]:
        base = name.removesuffix("0.gate_proj.weight")
        stacks = [
            mx.stack([weights.pop(f"{base}{e}.{p}.weight") for e in range(config.num_experts)])
            for p in ("gate_proj", "up_proj", "down_proj")
        ]
        weights[f"{base}gate_up_proj"] = mx.concatenate(stacks[:2], axis=1)
        weights[f"{base}down_proj"] = stacks[2]
    return weights
