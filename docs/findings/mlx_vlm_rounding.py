# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-vlm 0.7.10: rows of its verify pass, and of a prefill, against the model's own steps.

pip install --no-deps -r conformance/peers/mlx-vlm.txt
python docs/findings/mlx_vlm_rounding.py gdn   # python -m reference_models write gdn gdn
"""

import sys
from pathlib import Path

import mlx.core as mx
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.utils import load_model

model = load_model(Path(sys.argv[1])).language_model
prompt = mx.array([[100, 101, 102, 32, 115, 112, 97]])


def prefilled():
    """Caches that hold the prompt."""
    cache = make_prompt_cache(model)
    model(prompt, cache=cache)
    return cache


def show(name, tokens, wide):
    """Compare rows of one pass with steps."""
    steps, cache = prefilled(), prefilled()
    plain = mx.concatenate([model(mx.array([[t]]), cache=steps).logits for t in tokens], axis=1)
    off = mx.abs(plain - wide(mx.array([tokens]), cache))
    differing = (off > 0).sum().item()
    print(f"{name}, {len(tokens)} rows: {differing} of {off.size} differ, by up to {off.max():.1e}")


def verify(tokens, cache):
    """The pass of its MTP rounds."""
    hidden = model.speculative_verify_hidden(tokens, cache)[0]
    return model.speculative_logits_from_hidden(hidden)


for tokens in ([5], [5, 6], [5, 6, 7, 8]):
    show("verify", tokens, verify)
    show("prefill", tokens, lambda t, cache: model(t, cache=cache).logits)
