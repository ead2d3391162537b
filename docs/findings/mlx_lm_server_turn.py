# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-lm 0.32.2: two turns as mlx_lm.server with --draft-model does them.

`request` is what server.py does with a request: its LRUPromptCache and stream_generate, the cache
stored under prompt + emitted tokens. A random tiny qwen3 that is its own draft model. Rows without
a draft model are printed if they differ.

    pip install --no-deps -r conformance/peers/mlx-lm.txt
    python docs/findings/mlx_lm_server_turn.py
"""

from types import SimpleNamespace

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import stream_generate
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.models.qwen3 import Model, ModelArgs
from mlx_lm.tokenizer_utils import TokenizerWrapper

mx.random.seed(3)
model = Model(
    ModelArgs(
        model_type="qwen3",
        hidden_size=32,
        num_hidden_layers=3,
        intermediate_size=48,
        num_attention_heads=4,
        rms_norm_eps=1e-6,
        vocab_size=260,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        head_dim=16,
        tie_word_embeddings=False,
        rope_theta=1e4,
    )
)
model.update(tree_map(lambda a: a * 3 if a.ndim > 1 else a, model.parameters()))


class NoText(TokenizerWrapper):
    """A tokenizer of no text, without end tokens."""

    def __init__(self):
        pass

    @property
    def eos_token_ids(self):
        """None."""
        return set()

    @property
    def detokenizer(self):
        """Gives nothing."""
        return SimpleNamespace(
            reset=lambda: None, add_token=lambda token: None, finalize=lambda: None, last_segment=""
        )


def request(store, prompt, n, draft):
    """Answer with n tokens."""
    cache, rest = store.fetch_nearest_cache("model", prompt)
    if cache is None:
        cache = make_prompt_cache(model) + (make_prompt_cache(model) if draft else [])
    options = {"draft_model": model, "num_draft_tokens": 3} if draft else {}
    made = stream_generate(model, NoText(), rest, max_tokens=n, prompt_cache=cache, **options)
    out = [int(response.token) for response in made]
    store.insert_cache("model", prompt + out, cache)
    return out


PROMPT, QUESTION = [5, 9, 31, 7, 77, 3], [40, 41, 42]
for n in (3, 4, 5):
    for draft in (False, True):
        store = LRUPromptCache()
        second = PROMPT + request(store, PROMPT, n, draft) + QUESTION
        warm, cold = request(store, second, 4, draft), request(LRUPromptCache(), second, 4, draft)
        if draft or warm != cold:
            text = "as cold" if warm == cold else f"{warm}, cold {cold}"
            print(f"turn 1 of {n} tokens, draft model {draft}: turn 2 {text}")
