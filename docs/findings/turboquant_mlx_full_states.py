# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""turboquant-mlx-full 0.30.0: rollback_mode "auto", which is "states", on its own qwen4_exp port.

The drafter always says 7, so that every draft is rejected. After one round the recurrent layers'
caches are held against those of one pass over the tokens that stand.

    pip install --no-deps -r conformance/peers/turboquant-mlx-full.txt
    python docs/findings/turboquant_mlx_full_states.py flash-next   # write flash-next flash-next
"""

import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model
from turboquant_mlx.compat import get_model_classes
from turboquant_mlx.mtp import greedy_generate, resolve_rollback, speculative_generate

model: Any = load_model(Path(sys.argv[1]), get_model_classes=get_model_classes)[0]
text, embed, head = model.model, model.model.embed_tokens, model.lm_head
PROMPT = [100, 101, 102, 32, 115, 112, 97, 114, 101, 40, 41]
prompt = mx.array([PROMPT])


def seven(hidden, ids, embed, head, cache=None):
    """The drafter."""
    return (mx.arange(260) == 7).astype(mx.float32)[None, None]


def decode(n, mode):
    """Tokens and caches."""
    cache = model.make_cache()
    options = {"max_tokens": n, "make_cache": lambda: cache, "rollback_mode": mode}
    steps = speculative_generate(prompt, text, seven, embed, head, **options)
    return [token for token, _ in steps], cache


def slots(caches):
    """What each recurrent layer holds."""
    for i, cache in enumerate(caches):
        if hasattr(cache, "cache"):
            for name, array in zip(
                ("conv", "recurrent", "ple_conv", "ngram"), cache.cache, strict=True
            ):
                if array is not None:
                    yield f"layer {i} {name}", array


plain = greedy_generate(prompt, text, embed, head, max_tokens=5, make_cache=model.make_cache)
print("plain:", list(plain))
print("auto resolves to", resolve_rollback(text, "auto"))
for mode in ("snapshot", "auto"):
    print(f"{mode}: {decode(5, mode)[0]}")
    tokens, held = decode(2, mode)  # one round
    due = model.make_cache()
    text(mx.array([PROMPT + tokens[:-1]]), cache=due)
    for (name, array), (_, want) in zip(slots(held), slots(due), strict=True):
        off = float(mx.abs(array - want).max())
        if off > 1e-3 and "ngram" in name:
            print(f"  {name}: {array.tolist()}, due {want.tolist()}")
        elif off > 1e-3:
            print(f"  {name}: off by {off:.2g}")
