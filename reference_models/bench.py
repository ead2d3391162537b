"""`python -m reference_models.bench FOLDER`: what the benchmark decodes beside the trained models.

- `hidden-1024`: random, qwen3_5, hidden size 1024 and 12 layers, bfloat16. Heads are 128 x 128 and
  there are twice as many value heads as key heads, both as in Qwen3-Next-80B-A3B at half its width.
- `code.txt` and `prose.txt`: the prompts of `prompts.py`.

A model that is there already stays.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import mlx.core as mx

from reference_models.checkpoint import write
from reference_models.config import FULL, LINEAR, HybridConfig
from reference_models.prompts import PROMPTS
from reference_models.weights import draw
from reference_models.zoo import tensors_of

WIDE = "hidden-1024"
MODELS = {
    WIDE: HybridConfig(
        "qwen3_5",
        (LINEAR, LINEAR, LINEAR, FULL) * 3,
        hidden_size=1024,
        intermediate_size=3584,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        partial_rotary_factor=0.25,
        linear_num_key_heads=8,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    )
}


def write_model(name: str, config: HybridConfig, folder: Path) -> Path:
    """Write a model with random weights in bfloat16, whole or not at all; returns its folder."""
    whole, partial = folder / name, folder / f"{name}.partial"
    if whole.is_dir():
        return whole
    shutil.rmtree(partial, ignore_errors=True)
    weights: dict[str, mx.array] = {}
    for tensor_name, tensor in tensors_of(config).items():
        array = mx.array(draw(name, tensor_name, tensor, 0))
        is_decay = tensor_name.endswith("A_log")  # float32 in every checkpoint
        weights[tensor_name] = array if is_decay else array.astype(mx.bfloat16)
        mx.eval(weights[tensor_name])
    write(config, weights, partial)
    return partial.replace(whole)


def main(argv: list[str] | None = None) -> int:
    """Write everything; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m reference_models.bench",
        description="Write the random model and the prompts of the benchmark.",
        epilog="example: python -m reference_models.bench reports/bench/inputs",
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    mx.set_default_device(mx.cpu)
    for name, text in PROMPTS.items():
        (folder / f"{name}.txt").write_text(text)
    for name, config in MODELS.items():
        print(write_model(name, config, folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
