"""What the oracle is asked about: every model of the zoo, and one with small keys.

`gdn-small-keys` is `gdn` with the q and k rows of every recurrent projection a thousandth as
large. There the epsilon of the l2 norm is as large as what it is added to, so where it is added
shows; with ordinary weights it moves logits by no more than rounding does.
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from reference_models.checkpoint import write
from reference_models.config import HybridConfig
from reference_models.zoo import ZOO, config_of, random_weights

SMALL_KEYS = "gdn-small-keys"
MODELS = (*ZOO, SMALL_KEYS)


def config_for(model: str) -> HybridConfig:
    """The configuration of one of `MODELS`."""
    return config_of("gdn" if model == SMALL_KEYS else model)


def weights_of(model: str) -> dict[str, mx.array]:
    """The float32 weights of one of `MODELS`."""
    if model != SMALL_KEYS:
        return random_weights(model)
    config = config_for(model)
    keys = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    scale = mx.where(mx.arange(config.conv_channels) < keys, 2.0**-10, 1.0)[:, None]
    weights = random_weights("gdn")
    return {n: a * scale if n.endswith("in_proj_qkv.weight") else a for n, a in weights.items()}


def write_model(model: str, folder: Path) -> Path:
    """Write one of `MODELS` as a checkpoint folder and return it."""
    return write(config_for(model), weights_of(model), folder)
