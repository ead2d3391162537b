# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-optiq 0.7.7: what the caller's cache holds once generate_stream has ended.

generate_stream(prompt_ids=, cache=) is what `optiq serve --mtp` calls on mlx-lm's prompt cache;
mlx-lm's server keeps that cache under prompt + emitted tokens. Counted are generated tokens in it;
then the next turn's logits on it, against one fresh pass.

    pip install --no-deps -r conformance/peers/mlx-optiq.txt
    python docs/findings/mlx_optiq_after_stop.py gdn-agree   # reference_models write gdn-agree ...
"""

import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from optiq.runtime.engine import OptiqEngine

engine = OptiqEngine(sys.argv[1])
model, _ = load_model(Path(sys.argv[1]))  # the same model, for what is due
PROMPT, QUESTION = [100, 101, 102, 32, 115, 112, 97], [40, 41, 42]


def shown(cache, tokens):
    """Tokens held, and how far the next turn is off."""
    held = next(c.offset for c in cache if hasattr(c, "offset")) - len(PROMPT)
    warm = model(mx.array([QUESTION]), cache=cache)[0, -1]
    cold = model(mx.array([PROMPT + tokens + QUESTION]), cache=make_prompt_cache(model))[0, -1]
    return f"{held} ({mx.abs(warm - cold).max().item():.1g})"


for n in range(4, 8):
    cache = make_prompt_cache(model)
    steps = generate_step(mx.array(PROMPT), model, max_tokens=n, prompt_cache=cache)
    tokens = [int(token) for token, _ in steps]
    line = [f"emitted {n}; cached (next turn off by): mlx-lm {shown(cache, tokens)}"]
    for depth in (0, 1, 3):
        cache = make_prompt_cache(model)
        options = {"prompt_ids": PROMPT, "cache": cache, "depth": depth, "max_tokens": n}
        assert [event["token"] for event in engine.generate_stream("", **options)] == tokens
        line.append(f"depth {depth} {shown(cache, tokens)}")
    print(", ".join(line))
