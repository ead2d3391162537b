# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-dspark 0.20.3: what is counted of a block in which an end of text falls.

The drafter drafts the greedy stream, as a good drafter would for a while.

    pip install --no-deps -r conformance/peers/mlx-dspark.txt
    python docs/findings/mlx_dspark_counts.py gdn-agree   # reference_models write gdn-agree ...
"""

import sys

import mlx.core as mx
from mlx_dspark import (
    DSparkConfig,
    greedy_generate,
    load_target,
    speculative_generate,
)
from mlx_dspark.model import DSparkDrafter


class NoText:
    """A tokenizer of no text."""

    def __init__(self, *eos_token_ids):
        self.eos_token_ids = eos_token_ids

    def decode(self, tokens):
        """Nothing."""
        return ""


class Right(DSparkDrafter):
    """Drafts the stream."""

    said = 1
    accepted = 0

    def sample_block(self, base_logits, first_prev_token):
        """The next block's drafts."""
        return mx.array(stream[self.said : self.said + base_logits.shape[0]], mx.uint32)

    def on_round(self, committed, accepted, **_):
        """Count what was committed, and drafts that were accepted."""
        self.said += committed
        self.accepted += accepted


config = DSparkConfig(
    family="qwen3",
    norm_style="qwen",
    mlp_activation="silu",
    attention_k_eq_v=False,
    use_v_norm=False,
    rope_type="default",
    final_logit_softcapping=None,
    enable_confidence_head=False,
    hidden_size=32,
    vocab_size=260,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=32,
    block_size=7,
    target_layer_ids=[0, 2],
    markov_rank=0,
)
target, _ = load_target(sys.argv[1], require_tap=True)
prompt = [11, 12, 13]
stream = greedy_generate(target, NoText(), prompt_ids=prompt, max_new_tokens=40).token_ids
for at in (1, 2, 4, 7):
    right = Right(config)
    made = speculative_generate(
        target,
        NoText(stream[at]),
        right,
        prompt_ids=prompt,
        max_new_tokens=40,
        max_draft_tokens=4,
        lookup_drafts=False,
        on_round=right.on_round,
    )
    print(
        f"end of text at {at}: {made.num_tokens} tokens, 1 of the prefill; accept_lengths",
        f"{made.accept_lengths}, on_round: {right.accepted} drafts accepted",
    )
