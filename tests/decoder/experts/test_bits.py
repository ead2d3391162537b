"""Experts on disk: the bits are those of experts in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import load_model, save_model

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, generate_step
from mtp_decoder.experts import OffloadSettings
from mtp_decoder.qwen.load import load
from reference_models.checkpoint import read, write
from reference_models.weights import draw
from reference_models.zoo import config_of, tensors_of
from tests.decoder.experts.conftest import Offloaded
from tests.decoder.helpers import PROMPT


def decoded(target: Any, head: Any, **options: Any) -> dict[str, mx.array]:
    """State and logits after a prompt, two rounds of the head's drafts and a next turn."""
    session = Session(target, head, prefill_step_size=5, **options)
    found = {"prompt": session.prefill(PROMPT).logits}
    found |= {f"round{k}": session.round(k).logits for k in (3, 12)}
    found["turn"] = session.extend([7]).logits
    return session.state() | found


@pytest.mark.parametrize("slots", [1, 4, 40])
@pytest.mark.parametrize(
    ("name", "classes"), [("gdn-moe", False), ("flash-next", False), ("gdn-next", True)]
)
def test_any_budget(
    checkpoint: Callable[..., Path],
    offloaded: Callable[..., Offloaded],
    name: str,
    classes: bool,
    slots: int,
) -> None:
    """Logits and caches are those of experts in memory, however few slots there are."""
    folder = checkpoint(name)
    due = decoded(*(load(folder) if classes else read(folder)))
    target, head, *_ = offloaded(name, slots, classes=classes)
    require_equal(decoded(target, head), due, what="experts in memory")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint whose rows and experts can be quantised."""
    config = replace(
        config_of("gdn-wide"), model_type="qwen3_5_moe", num_experts=6, moe_intermediate_size=32
    )
    weights = {n: mx.array(draw("wide", n, t)) for n, t in tensors_of(config).items()}
    return write(config, weights, tmp_path_factory.mktemp("wide") / "checkpoint")


@pytest.mark.parametrize("start", [0, 5, 6, 10, 12])
def test_rows_quantised_inside_the_prompt(wide: Path, start: int) -> None:
    """Layer by layer, rows are quantised before the same chunk as pass by pass."""
    options = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": start}
    due = decoded(*load(wide), **options)
    found = decoded(*load(wide, OffloadSettings(10**6)), **options)
    require_equal(found, due, what="experts in memory")


def test_quantised_experts(wide: Path, tmp_path: Path) -> None:
    """mlx-lm's quantised checkpoints keep scales and biases beside each expert's weights."""
    model, config = load_model(wide)
    nn.quantize(model, 32, 4, class_predicate=lambda _, m: isinstance(m, SwitchLinear))
    save_model(tmp_path, model)
    quantised = {**config, "quantization": {"group_size": 32, "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(quantised))

    def logits(experts: OffloadSettings | None) -> dict[str, mx.array]:
        target, _ = load(tmp_path, experts)
        steps = generate_step(PROMPT, target, num_draft_tokens=0, max_tokens=5)
        return {f"{i}": logprobs for i, (_, logprobs, _) in enumerate(steps)}

    require_equal(logits(OffloadSettings(15_000)), logits(None), what="experts in memory")


def test_experts_are_never_in_memory(wide: Path) -> None:
    """A model with its experts on disk holds slots, and no other expert weights."""
    target, head = load(wide, OffloadSettings(15_000))
    assert head is not None
    held = cast("list[Any]", target.model.modules() + head.modules())
    assert not [module for module in held if type(module).__name__.startswith("Switch")]
