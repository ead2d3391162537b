"""What is trained, and every number of how.

Two byte-level models of about a million parameters. `qwen3_5-bytes` is a GatedDeltaNet and
attention hybrid in the layout of qwen3_5; `flash-next-bytes` has every mechanism of the zoo's
`flash-next` (PLE, pooled index keys, hyper-connections, experts) in the layout of qwen4_exp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference_models.config import FULL, INDEXED, LINEAR, HybridConfig


@dataclass(frozen=True)
class Recipe:
    """One model and its training. Rows of a batch come from code and prose in turn.

    Matrices between layers are trained by Muon (Jordan, 2024), everything else by Adam. Both
    rates rise linearly for `warm_up` steps, stay, and fall linearly to zero in the last
    `cool_down` steps. `head_depths` is how often the head is chained on its own hidden in
    training; `head_share` the weight of the mean of its losses beside the target's,
    `index_share` that of the index's.
    """

    config: HybridConfig
    seed: int = 20
    steps: int = 1300
    warm_up: int = 40
    cool_down: int = 300
    batch: int = 4
    length: int = 256
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    head_depths: int = 3
    head_share: float = 0.5
    index_share: float = 0.1

    def rate(self, step: int) -> float:
        """What both rates are multiplied by in step `step`, counted from 0."""
        return min(1.0, (step + 1) / self.warm_up, (self.steps - step) / self.cool_down)


_SMALL_GDN: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}

RECIPES: dict[str, Recipe] = {
    "qwen3_5-bytes": Recipe(
        HybridConfig(
            "qwen3_5",
            (LINEAR, LINEAR, LINEAR, FULL),
            hidden_size=128,
            intermediate_size=320,
            head_dim=32,
            partial_rotary_factor=0.25,
            **_SMALL_GDN,
        )
    ),
    "flash-next-bytes": Recipe(
        HybridConfig(
            "qwen4_exp",
            (LINEAR, LINEAR, LINEAR, INDEXED),
            hidden_size=96,
            head_dim=32,
            partial_rotary_factor=0.25,
            indexer_n_heads=4,
            indexer_budget=32,
            ple_layer_ids=(2,),
            ple_embed_dim=64,
            ngram_vocab_size_base=1500,
            hc_count=2,
            hc_lowrank=16,
            output_gate_type="sigmoid",
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=64,
            **_SMALL_GDN,
        ),
        steps=800,
        cool_down=220,
    ),
}
