"""The training loop: can be stopped at any time and goes on where it was, to the bit.

All that a step depends on is in one file, the checkpoint: weights, the optimizers' moments, the
number of the step, the losses so far. It is written to a temporary file and renamed, every
`SAVE_EVERY` steps and when the loop is left for whatever reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx.optimizers import Adam, Muon, Optimizer, clip_grad_norm
from mlx.utils import tree_flatten

from reference_models.training.losses import losses
from reference_models.training.recipe import Recipe
from reference_models.training.start import start
from reference_models.training.texts import Tokens, crops
from reference_models.weights import Fill
from reference_models.zoo import tensors_of

SAVE_EVERY = 50
MEAN_OF = 10
"""Steps whose losses one row of the curve is the mean of."""

Arrays = dict[str, mx.array]
Curve = list[list[float]]


class ResumeError(ValueError):
    """A checkpoint that this run cannot go on from; the message says why."""


class Training:
    """One run: `step` until `done`, `save` in between.

    Attributes:
        arrays: the weights, float32, by name.
        at: steps done.
        curve: rows of step number and mean losses, in the order of `losses.losses`.
    """

    def __init__(self, name: str, recipe: Recipe, texts: Mapping[str, Tokens]) -> None:
        self.name, self.recipe, self.at = name, recipe, 0
        self.arrays: Arrays = start(name, recipe.config, recipe.seed)
        self.curve: Curve = []
        self._texts = texts
        self._recent: Curve = []
        self._optimizers = _optimizers(self.arrays, recipe)
        self._gradients = cast(
            "Callable[[Arrays, mx.array], tuple[tuple[mx.array, ...], Arrays]]",
            mx.value_and_grad(lambda arrays, tokens: tuple(losses(recipe, arrays, tokens))),
        )

    @property
    def done(self) -> bool:
        """Whether all steps of the recipe are done."""
        return self.at >= self.recipe.steps

    def step(self) -> list[float]:
        """One step; returns its losses."""
        recipe = self.recipe
        batch = crops(self._texts, recipe.seed, self.at, recipe.batch, recipe.length + 1)
        found, gradients = self._gradients(self.arrays, mx.array(batch))
        gradients, _ = clip_grad_norm(gradients, 1.0)
        arrays = dict(self.arrays)
        for optimizer, peak, names in self._optimizers:
            optimizer.learning_rate = peak * recipe.rate(self.at)
            own = {name: gradients[name] for name in names}
            arrays |= optimizer.apply_gradients(own, {name: self.arrays[name] for name in names})
        mx.eval(arrays, found, [optimizer.state for optimizer, _, _ in self._optimizers])
        self.arrays, values = arrays, [float(cast("float", x.item())) for x in found]
        self.at += 1
        self._note(values)
        return values

    def _note(self, values: list[float]) -> None:
        self._recent.append(values)
        if len(self._recent) == MEAN_OF:
            means = [float(x) for x in np.mean(self._recent, axis=0)]
            self.curve.append([float(self.at), *means])
            self._recent = []

    def save(self, file: Path) -> None:
        """Write the checkpoint; whole, or not at all."""
        tensors = {f"weights.{name}": array for name, array in self.arrays.items()}
        for index, (optimizer, _, _) in enumerate(self._optimizers):
            flat = cast("list[tuple[str, mx.array]]", tree_flatten(optimizer.state))
            tensors |= {f"optimizer{index}.{name}": array for name, array in flat}
        progress = {"at": self.at, "curve": self.curve, "recent": self._recent}
        facts = {"recipe": _stamp(self.name, self.recipe), "progress": json.dumps(progress)}
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".part.safetensors")
        mx.save_safetensors(str(temporary), tensors, facts)
        temporary.replace(file)

    def resume(self, file: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            ResumeError: it is not whole, or of another recipe.
        """
        try:
            loaded = mx.load(str(file), return_metadata=True)
        except RuntimeError as error:
            raise ResumeError(f"{file} is no whole checkpoint: {error}; remove it") from error
        tensors, facts = cast("tuple[Arrays, dict[str, str]]", loaded)
        if facts.get("recipe") != _stamp(self.name, self.recipe):
            raise ResumeError(
                f"{file} is of another recipe; remove it, or train into another folder"
            )
        mx.eval(list(tensors.values()))
        # In the order they had: the norm of all gradients is a sum in this order.
        self.arrays = {name: tensors[f"weights.{name}"] for name in self.arrays}
        for index, (optimizer, _, _) in enumerate(self._optimizers):
            _restore(optimizer.state, _below(f"optimizer{index}.", tensors))
        progress = json.loads(facts["progress"])
        self.at, self.curve = progress["at"], progress["curve"]
        self._recent = progress["recent"]


def run(training: Training, file: Path, progress: Callable[[int, list[float]], None]) -> None:
    """Take all steps left. Whatever ends it, the checkpoint holds every finished step."""
    try:
        while not training.done:
            values = training.step()
            progress(training.at, values)
            if training.at % SAVE_EVERY == 0:
                training.save(file)
    finally:
        training.save(file)


def _optimizers(arrays: Arrays, recipe: Recipe) -> list[tuple[Optimizer, float, list[str]]]:
    """Each optimizer, its rate and the weights it trains."""
    muon = Muon(recipe.muon_rate, weight_decay=0.0)
    adam = Adam(recipe.adam_rate, betas=[0.9, 0.98], bias_correction=True)
    hidden = [name for name in arrays if _is_hidden(name, recipe)]
    rest = [name for name in arrays if name not in hidden]
    found = [(muon, recipe.muon_rate, hidden), (adam, recipe.adam_rate, rest)]
    for optimizer, _, names in found:
        optimizer.init({name: arrays[name] for name in names})
    return cast("list[tuple[Optimizer, float, list[str]]]", found)


def _is_hidden(name: str, recipe: Recipe) -> bool:
    """Whether a weight is a matrix from one hidden size to another."""
    tensor = tensors_of(recipe.config)[name]
    matrix = tensor.fill in (Fill.MATRIX, Fill.LOUD_MATRIX) and len(tensor.shape) == 2
    return matrix and min(tensor.shape) >= 8 and name != "lm_head.weight"


def _below(prefix: str, tensors: Arrays) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}


def _restore(state: dict[str, Any], flat: Arrays) -> None:
    """Put arrays named `weight.moment`, or by one word, back into an optimizer's state."""
    for full, array in flat.items():
        weight, _, moment = full.rpartition(".")
        (state[weight] if weight else state)[moment] = array


def _stamp(name: str, recipe: Recipe) -> str:
    """The recipe as text; two runs may share a checkpoint only if theirs are equal."""
    return json.dumps({"name": name, **asdict(recipe)}, sort_keys=True)
