# pyright: reportMissingImports=false
# (PyTorch is in the oracle's environment alone)
"""The oracle's work on one model: open, run, measure; and on all: compare, or store."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch

from reference_models.checkpoint import read, read_config
from reference_models.config import LINEAR, HybridConfig
from reference_models.prompts import PROMPTS, prompt_tokens
from tests.oracle import choices, mlx_lm_classes, page, reference, running, stored
from tests.oracle.compare import (
    SAME,
    TIE,
    Distance,
    cut_gaps,
    distance,
    distances,
    other_choices,
    tied_rows,
)
from tests.oracle.double import double
from tests.oracle.hugging_face import open_folder
from tests.oracle.models import MODELS, config_for, write_model
from tests.oracle.trajectory import LENGTH, LOGITS, WAYS, Trajectory

NUDGES = 3
"""How many times all weights are moved by a rounding."""

MLX_LM = "mlx-lm"

OF_MLX_LM = (
    *("hidden", "logits.parts", "logits.steps", ".conv", ".recurrent", ".keys", ".values"),
    *("head.logits", "head.chain"),
)
"""What mlx-lm lacks where it cannot be given a cache."""


@dataclass(frozen=True)
class Golden:
    """What transformers computed in float64 for one model."""

    config: HybridConfig
    tokens: list[int]
    trajectory: Trajectory
    drafts: list[int]
    cuts: dict[str, float]
    ways: float


def without_tie(config: HybridConfig, folder: Path) -> Golden:
    """The first prompt at which no selection and no route is a tie, and what comes of it.

    Raises:
        ValueError: every prompt has one.
    """
    seen: dict[str, dict[str, float]] = {}
    for name in PROMPTS:
        golden = run_golden(config, folder, prompt_tokens(LENGTH, name))
        if min(golden.cuts.values(), default=1.0) > TIE:
            return golden
        seen[name] = golden.cuts
    raise ValueError(f"{folder.name}: every prompt has a tie at a cut: {seen}")


def run_golden(
    config: HybridConfig, folder: Path, tokens: list[int], chain: list[int] | None = None
) -> Golden:
    """Transformers in float64, its casts neutralised; without a chain the head drafts its own."""
    target, head = open_folder(folder, torch.float64)
    with double():
        found, drafts, cuts = running.trajectory(target, head, tokens, chain, config.eos_token_id)
    return Golden(config, tokens, found, drafts, cuts.smallest(), _ways_apart(found))


def _ways_apart(found: Trajectory) -> float:
    """How far the logits in parts and token by token are from those of one pass.

    Raises:
        ValueError: further than float64 explains, so there is no one right value to store.
    """
    apart = max(distance(name, found[name], found["logits"]) for name in WAYS)
    if apart > SAME:
        raise ValueError(f"transformers' own logits differ by {apart:.1e} between ways to run it")
    return apart


def sensitivities(folder: Path, golden: Golden) -> dict[str, float]:
    """How far each quantity moves when every weight moves by half a float32 ULP, up or down."""
    worst = dict.fromkeys(golden.trajectory, 0.0)
    for seed in range(NUDGES):
        target, head = open_folder(folder, torch.float64)
        signs = torch.Generator().manual_seed(seed)
        for module in (target, head):
            for weight in module.parameters():
                up = torch.randint(0, 2, weight.shape, generator=signs) * 2 - 1
                weight.mul_(1.0 + up.to(torch.float64) * 2.0**-24)
        with double():
            moved, _, _ = running.trajectory(
                target, head, golden.tokens, golden.drafts, golden.config.eos_token_id
            )
        for name, array in moved.items():
            worst[name] = max(worst[name], distance(name, array, golden.trajectory[name]))
    return worst


def entry_of(model: str, folder: Path) -> tuple[dict[str, Any], Trajectory, list[str]]:
    """What the manifest says of a model but its file, its trajectory, and what is too far off."""
    config = config_for(model)
    golden = without_tie(config, folder)
    sensitivity = sensitivities(folder, golden)
    trajectories = computed(folder, golden)
    found = judged(golden, trajectories, sensitivity)
    ties = {name: tied_rows(golden.trajectory[name]) for name in LOGITS}
    measured = {name: {d.name: d.found for d in apart} for name, apart in found.items()}
    lines = [*too_far(model, found), *other_tokens(model, golden, trajectories, ties)]
    of_choices = choices.measured(folder, config, golden.trajectory, golden.drafts, golden.tokens)
    entry = {
        "weights": stored.digest_of(model),
        "made_of": made_of(config),
        "tokens": golden.tokens,
        "drafts": golden.drafts,
        "sensitivity": sensitivity,
        "cuts": golden.cuts,
        "ways": golden.ways,
        "ties": ties,
        "measured": measured,
        "choices": of_choices,
    }
    return entry, golden.trajectory, lines


def made_of(config: HybridConfig) -> str:
    """What of transformers the target is."""
    if config.model_type == "hybrid_reference":
        return "modules of qwen3_5 and qwen4_exp"
    return f"{config.model_type}'s own class"


def computed(folder: Path, golden: Golden) -> dict[str, Trajectory]:
    """What everything that computes the model in float32 computes."""
    mx.set_default_device(mx.cpu)
    tokens, drafts = golden.tokens, golden.drafts
    own = reference.trajectory(*read(folder), tokens, drafts)
    target, head = open_folder(folder, torch.float32)
    eos = golden.config.eos_token_id
    shipped, _, _ = running.trajectory(target, head, tokens, drafts, eos)
    found = {"reference_models": own, "transformers, float32": shipped}
    if golden.config.model_type.startswith("qwen3"):
        found[MLX_LM] = mlx_lm_classes.trajectory(folder, tokens, drafts)
    return found


def judged(
    golden: Golden, found: dict[str, Trajectory], sensitivity: dict[str, float]
) -> dict[str, list[Distance]]:
    """Distances from the golden values of everything that was computed."""
    cached = LINEAR in golden.config.layer_types
    return {
        name: distances(
            trajectory,
            golden.trajectory,
            sensitivity,
            lacking=OF_MLX_LM if name == MLX_LM and not cached else (),
        )
        for name, trajectory in found.items()
    }


def other_tokens(
    model: str, golden: Golden, found: dict[str, Trajectory], ties: dict[str, list[int]]
) -> list[str]:
    """Where another token is likeliest than is due, in words: everybody is held to it."""
    return [
        f"{model}: {name}: {quantity}: another likeliest token in row {row}"
        for name, trajectory in found.items()
        for quantity in LOGITS
        if quantity in trajectory
        for row in other_choices(trajectory[quantity], golden.trajectory[quantity], ties[quantity])
    ]


def too_far(model: str, found: dict[str, list[Distance]]) -> list[str]:
    """What is further off than it may be, in words."""
    return [f"{model}: {name}: {d}" for name, apart in found.items() for d in apart if not d.within]


def write(folder: Path, versions: dict[str, str]) -> int:
    """Run every model, then store what was computed and write the page; returns the exit code.

    Nothing is stored of a run in which anything is further off than it may be.
    """
    entries: dict[str, stored.Entry] = {}
    arrays: dict[str, Trajectory] = {}
    parts: dict[str, dict[str, Any]] = {}
    wrong = 0
    for model in MODELS:
        print(f"{model} ...", flush=True)
        parts[model], arrays[model], lines = entry_of(model, write_model(model, folder / model))
        print(f"  {difference_from_stored(model, arrays[model])}", flush=True)
        wrong += len(lines)
        for line in lines:
            print(f"  {line}", file=sys.stderr)
    if wrong:
        print(f"oracle: FAIL, nothing is stored ({wrong} quantities)", file=sys.stderr)
        return 1
    for model, part in parts.items():
        file, digest = stored.write_trajectory(model, arrays[model])
        entries[model] = stored.Entry(file=file, sha256=digest, **part)
    print(f"wrote {stored.write_manifest(entries, versions)}")
    print(f"wrote {page.write(stored.read_manifest())}")
    return 0


def difference_from_stored(model: str, trajectory: Trajectory) -> str:
    """One line on what changes against what is stored."""
    try:
        _, before = stored.read(model)
    except stored.StoredError as error:
        return f"new ({error})"
    if set(before) != set(trajectory):
        return f"other quantities: {sorted(set(before) ^ set(trajectory))}"
    moved = {n: distance(n, a, before[n]) for n, a in trajectory.items()}
    name = max(moved, key=lambda n: moved[n])
    changed = sum(not np.array_equal(trajectory[n], before[n]) for n in moved)
    return f"{changed} of {len(moved)} quantities change, {name} most, by {moved[name]:.1e}"


def check(models: list[str], folder: Path) -> int:
    """Run models again and compare; returns 1 if anything is further than due."""
    wrong = 0
    for model in models:
        lines = check_one(model, write_model(model, folder / model))
        wrong += len(lines)
        print(f"{'FAIL' if lines else 'ok  '}  {model}", flush=True)
        for line in lines:
            print(f"      {line}", file=sys.stderr)
    print(f"oracle: {'pass' if not wrong else f'FAIL ({wrong} quantities)'}")
    return int(wrong > 0)


def check_one(model: str, folder: Path) -> list[str]:
    """What is wrong with a model, in words; nothing if all is as due."""
    entry, before = stored.read(model)
    golden = run_golden(read_config(folder), folder, entry.tokens, entry.drafts)
    lines = [
        f"{model}: transformers' own {n} is {d:.1e} from what is stored"
        for n, a in golden.trajectory.items()
        if (d := distance(n, a, before[n])) > SAME
    ]
    trajectories = computed(folder, golden)
    lines += too_far(model, judged(golden, trajectories, entry.sensitivity))
    config = golden.config
    gaps = cut_gaps(golden.trajectory, config.indexer_budget // config.indexer_compress_ratio)
    lines += [f"{model}: tie at the cut of {n}: {g:.1e}" for n, g in gaps.items() if g < TIE]
    return lines + other_tokens(model, golden, trajectories, entry.ties)
