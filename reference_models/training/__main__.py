"""`python -m reference_models.training`: train the models that are shipped."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from reference_models.training.loop import ResumeError, Training, run
from reference_models.training.recipe import RECIPES, Recipe
from reference_models.training.ship import TRAINED, ship
from reference_models.training.texts import NAMES, TextError, text, training_part

_EXAMPLES = """examples:
  python -m reference_models.training                          # both, or what is left of them
  python -m reference_models.training --model qwen3_5-bytes --out /tmp/training
  python -m reference_models.training --ship                   # and replace the shipped folders
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference_models.training",
        description="Train the byte-level models. Ctrl-C stops; the same command goes on.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", choices=list(RECIPES), help="one of them (all)")
    add(
        "--out",
        type=Path,
        default=Path("reports/training"),
        metavar="DIR",
        help="where runs are kept, and the finished folders (reports/training)",
    )
    add("--ship", action="store_true", help=f"write the finished folders to {TRAINED.name}/")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0; 2 for a bad file; 130 after Ctrl-C, with every finished step kept.
    """
    arguments = _parser().parse_args(argv)
    mx.set_default_device(mx.cpu)
    out: Path = arguments.out
    names: list[str] = [arguments.model] if arguments.model else list(RECIPES)
    try:
        for name in names:
            training = _train(name, RECIPES[name], out / f"{name}.safetensors")
            print(ship(training, (TRAINED if arguments.ship else out) / name))
    except (ResumeError, TextError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _train(name: str, recipe: Recipe, file: Path) -> Training:
    texts = {part: training_part(text(part)) for part in NAMES}
    training = Training(name, recipe, texts)
    if file.exists():
        training.resume(file)
        print(f"{name}: goes on after step {training.at} of {recipe.steps}", flush=True)
    if not training.done:
        run(training, file, _progress(name, recipe, training.at))
    return training


def _progress(name: str, recipe: Recipe, first: int) -> Callable[[int, list[float]], None]:
    """What prints a line now and then: losses, pace, time left."""
    begun = time.perf_counter()

    def progress(at: int, values: list[float]) -> None:
        if at % 10 and at != recipe.steps:
            return
        each = (time.perf_counter() - begun) / (at - first)
        target, *heads = (f"{value:.3f}" for value in values[1 : 2 + recipe.head_depths])
        line = f"{name} {at}/{recipe.steps}: target {target}, head {' '.join(heads)}"
        left = each * (recipe.steps - at) / 60
        print(f"{line}; {each:.2f} s a step, {left:.0f} min left", flush=True)

    return progress


if __name__ == "__main__":
    sys.exit(main())
