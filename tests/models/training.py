"""What the tests of training share: recipes small enough to be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from reference_models.training.loop import Training
from reference_models.training.recipe import RECIPES, Recipe
from reference_models.zoo import config_of

TEXT = {"counting": (np.arange(4096) % 29 + 65).astype(np.int32)}
"""A text one can learn in a few steps."""


def tiny(model: str = "gdn", steps: int = 4) -> Recipe:
    """A recipe with two layers of a zoo model, one of each kind, and a few small steps."""
    config = config_of(model)
    kinds = (config.layer_types[0], config.layer_types[-1])
    ple = (1,) if config.ple_layer_ids else ()
    config = replace(config, layer_types=kinds, ple_layer_ids=ple)
    recipe = replace(RECIPES["qwen3_5-bytes"], config=config, steps=steps)
    return replace(recipe, warm_up=1, cool_down=1, batch=2, length=32)


def tiny_training(model: str = "gdn", steps: int = 4) -> Training:
    """A run of it that has not begun."""
    return Training(model, tiny(model, steps), TEXT)


def ignore(at: int, values: list[float]) -> None:
    """Take no notice of progress."""


def raising_at(step: int, error: type[BaseException]) -> Callable[[int, list[float]], None]:
    """A listener to progress that raises after a step."""

    def progress(at: int, values: list[float]) -> None:
        if at == step:
            raise error

    return progress
