# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-lm 0.32.2: where speculative_generate_step leaves the prompt caches.

A random tiny qwen3, greedy; the draft model is the target, so that every draft stands. Counted are
generated tokens in the caches; then the next turn's logits on them, against one fresh pass.

    pip install --no-deps -r conformance/peers/mlx-lm.txt
    python docs/findings/mlx_lm_frontier.py
"""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.qwen3 import Model, ModelArgs

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
PROMPT, QUESTION = [5, 9, 31, 7, 77, 3], [40, 41, 42]


def next_turn(cache, tokens) -> float:
    """How far the logits of the next turn are from those of a fresh pass."""
    warm = model(mx.array([QUESTION]), cache=cache)[0, -1]
    cold = model(mx.array([PROMPT + tokens + QUESTION]))[0, -1]
    return float(mx.abs(warm - cold).max())


for n in (3, 4, 5):
    plain = make_prompt_cache(model)
    steps = generate_step(mx.array(PROMPT), model, max_tokens=n, prompt_cache=plain)
    tokens = [int(token) for token, _ in steps]
    both = make_prompt_cache(model) + make_prompt_cache(model)  # target's, then draft model's
    options = {"num_draft_tokens": 3, "max_tokens": n, "prompt_cache": both}
    made = list(speculative_generate_step(mx.array(PROMPT), model, model, **options))
    assert [int(token) for token, _, _ in made] == tokens
    held = [cache.offset - len(PROMPT) for cache in (plain[0], both[0], both[3])]
    print(
        f"{n} tokens, the last a draft: {made[-1][2]!s:5}; cached: plain {held[0]},",
        f"target {held[1]}, draft model {held[2]}; next turn off by: plain",
        f"{next_turn(plain, tokens):.1g}, speculative {next_turn(both[:3], tokens):.1g}",
    )
