# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""dflash-mlx 0.1.8: tokens emitted after a stop token.

The draft backend (a public protocol) drafts the greedy stream, as a good drafter would for a while.

    pip install --no-deps -r conformance/peers/dflash-mlx.txt
    python docs/findings/dflash_mlx_stop.py gdn-equal   # see dflash_mlx_equal_heads.py
"""

import sys

import mlx.core as mx
from dflash_mlx.draft_backend import EagerDraftBackend
from dflash_mlx.engine.events import TokenEvent
from dflash_mlx.engine.fallback import stream_baseline_generate
from dflash_mlx.model import DFlashDraftModel, DFlashDraftModelArgs
from dflash_mlx.runtime import VerifyConfig, stream_dflash_generate
from dflash_mlx.runtime.context import build_offline_runtime_context
from dflash_mlx.runtime.loading import load_target_bundle

bundle = load_target_bundle(sys.argv[1], lazy=False, verify_config=VerifyConfig())
common = {
    "target_model": bundle.model,
    "target_ops": bundle.target_ops,
    "tokenizer": None,
    "prompt": "",
    "max_new_tokens": 12,
    "prompt_tokens_override": [11, 12, 13],
}
drafter = DFlashDraftModelArgs(
    model_type="qwen3",
    hidden_size=32,
    num_hidden_layers=1,
    intermediate_size=32,
    num_attention_heads=2,
    rms_norm_eps=1e-6,
    vocab_size=260,
    num_key_value_heads=1,
    max_position_embeddings=4096,
    rope_theta=10000.0,
    head_dim=16,
    tie_word_embeddings=False,
    num_target_layers=6,
    block_size=5,
    dflash_config={"target_layer_ids": [0, 2]},
)


def tokens(events):
    """What a caller is given."""
    return [event.token_id for event in events if isinstance(event, TokenEvent)]


stream = tokens(stream_baseline_generate(**common))
print("greedy stream", stream)


class Right(EagerDraftBackend):
    """Drafts the stream."""

    at = 1

    def draft_greedy(self, **options):
        """The next block's drafts."""
        k = options["block_len"] - 1
        drafts, self.at = stream[self.at : self.at + k], self.at + k + 1
        return mx.array((drafts + [0] * k)[:k], mx.uint32)


for index in (2, 3, 5):
    stop = [stream[index]]
    plain = tokens(stream_baseline_generate(**common, stop_token_ids=stop))
    made = tokens(
        stream_dflash_generate(
            **common,
            stop_token_ids=stop,
            draft_model=DFlashDraftModel(drafter),
            draft_backend=Right(),
            block_tokens=5,
            runtime_context=build_offline_runtime_context(verify_mode="dflash"),
        )
    )
    print(f"stop {stop}: stream_baseline_generate emits {len(plain)} tokens, dflash {len(made)}")
