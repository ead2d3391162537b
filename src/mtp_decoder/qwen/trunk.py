"""mlx-lm's model of a checkpoint folder, and what is wrong with one that mlx-lm refuses.

mlx-lm knows norms stored about zero by the layout alone, and of qwen3_next no fused experts; both
are brought into the form it knows. What it refuses it names in lists of its own parameters: the
first tensor that does not fit is looked for here instead.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from mtp_decoder.errors import CheckpointError
from mtp_decoder.qwen.files import is_head
from mtp_decoder.qwen.norms import TRUNK_NORMS, Norms

FUSED = re.compile(r"(.*\.mlp\.experts\.)gate_up_proj")
"""Hugging Face's name of all experts of a layer in one tensor [E, 2F, H], gates first."""
_PARTS = ("scales", "biases", "global_scale")
"""What stands beside a quantised weight."""
_WORDS = 300
"""Characters of what mlx-lm says that are passed on."""

Weights = dict[str, mx.array]


def load_trunk(path: Path, family: str, norms: Norms | None, *, lazy: bool) -> Any:
    """mlx-lm's model, its norms read as mlx-lm does, or as they are said to be stored.

    Args:
        path: the folder.
        family: its `model_type`.
        norms: what they are stored about, where mlx-lm would take them for something else.
        lazy: leave weights on disk until they are used.

    Raises:
        CheckpointError: names the tensor that is missing, unknown or of another shape.
    """
    module: Any = importlib.import_module(f"mlx_lm.models.{family}")
    stored, due = Weights(), Weights()

    class Sanitised(module.Model):
        """The family's model, which never sees the head's tensors."""

        def sanitize(self, weights: Weights) -> Weights:
            trunk = {name: array for name, array in weights.items() if not is_head(name)}
            if family == "qwen3_next":
                trunk = _one_by_one(trunk)
            if norms is None:
                made: Weights = super().sanitize(trunk)
            else:
                # mlx-lm adds one to vectors alone; taking it off again would cost bits.
                made = super().sanitize(_norms_in(trunk, ndim=2))
                made = _norms_in(made, ndim=1, add=float(norms is Norms.ABOUT_ZERO))
            stored.update(made)
            due.update(cast("list[tuple[str, mx.array]]", tree_flatten(self.parameters())))
            return made

    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        model, _ = load_model(
            path, lazy=lazy, get_model_classes=lambda config: (Sanitised, module.ModelArgs)
        )
    except Exception as error:  # whatever a config or a tensor that does not fit ends in
        why = (
            _lacking(error)
            or _unsaid(path, stored)
            or misfit(due, stored)
            or f"mlx-lm cannot load it: {_said(error)}"
        )
        raise CheckpointError(f"{path}: {why}") from error
    model.__class__ = module.Model
    return model


def misfit(due: Mapping[str, mx.array], stored: Mapping[str, mx.array]) -> str:
    """The first thing in which stored tensors are not those a model needs; or nothing.

    Args:
        due: the model's parameters, none of them quantised.
        stored: by the same names; a quantised matrix is a weight, scales and perhaps biases.
    """
    missing = [name for name in due if name not in stored]
    unknown = [n for n in stored if n not in due and not _is_part(n, due)]
    said = f"it lacks {_few(missing)} ({len(missing)} of its {len(due)} tensors)" * bool(missing)
    if unknown:
        beside = f"{_few(unknown)}, which the config has no place for"
        said = f"{said}, and has {beside}" if said else f"it has {beside}"
    if said:
        return f"{said}; fetch or convert it again"
    for name, array in due.items():
        if f"{_stem(name)}.scales" in stored and name.endswith(".weight"):
            if not _is_packed(array, stored, _stem(name)):
                packed = (stored[f"{_stem(name)}.{part}"].shape for part in ("weight", "scales"))
                shapes = ", its scales ".join(map(str, packed))
                return f"{_own(name)} is {shapes}: no quantised matrix of {array.shape}"
        elif stored[name].shape != array.shape:
            return f"{_own(name)} is {stored[name].shape}, the config says {array.shape}"
    return ""


def _is_part(name: str, due: Mapping[str, mx.array]) -> bool:
    stem, _, part = name.rpartition(".")
    return part in _PARTS and f"{stem}.weight" in due


def _is_packed(due: mx.array, stored: Mapping[str, mx.array], stem: str) -> bool:
    weight, scales = stored[f"{stem}.weight"].shape, stored[f"{stem}.scales"].shape
    *rows, columns = due.shape
    whole = not 32 * weight[-1] % columns and not columns % max(1, scales[-1])
    biases = stored.get(f"{stem}.biases")
    same = biases is None or biases.shape == scales
    return list(weight[:-1]) == rows == list(scales[:-1]) and whole and same


def _one_by_one(weights: Weights) -> Weights:
    """Fused experts of Hugging Face's layout as those stored one by one, which mlx-lm stacks."""
    made = dict(weights)
    for name in weights:
        if (match := FUSED.fullmatch(name)) is None:
            continue
        gate, up = mx.split(made.pop(name), 2, axis=1)
        parts = {"gate_proj": gate, "up_proj": up, "down_proj": made.pop(f"{match[1]}down_proj")}
        for part, stack in parts.items():
            made |= {f"{match[1]}{e}.{part}.weight": stack[e] for e in range(stack.shape[0])}
    return made


def _norms_in(weights: Weights, *, ndim: int, add: float = 0.0) -> Weights:
    """The weights with norms of so many dimensions, and something added to them."""
    found = dict(weights)
    for name, array in weights.items():
        if name.endswith(TRUNK_NORMS):
            flat = array.reshape(-1)
            found[name] = (flat + add if add else flat).reshape((1,) * (ndim - 1) + (-1,))
    return found


def _unsaid(path: Path, stored: Mapping[str, mx.array]) -> str:
    """Whether the config keeps from mlx-lm that tensors are quantised."""
    config = json.loads((path / "config.json").read_text())
    if any(name in config for name in ("quantization", "quantization_config")):
        return ""
    found = any(name.endswith(".scales") for name in stored)
    return 'its tensors are quantised, and config.json has no "quantization"' if found else ""


def _lacking(error: Exception) -> str:
    """What is missing where mlx-lm, or what is done here, took a tensor that is not there."""
    name = error.args[0] if isinstance(error, KeyError) and error.args else None
    if not isinstance(name, str) or ".mlp." not in name:
        return ""
    return f"it lacks {_own(name)}; fetch or convert it again"


def _said(error: Exception) -> str:
    """One line of an error, with its class where that says most."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _WORDS else f"{text[:_WORDS]} ..."
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(_own, names[:3])) + more


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _own(name: str) -> str:
    """A parameter's name without what mlx-lm puts before it."""
    return name.removeprefix("language_model.")
