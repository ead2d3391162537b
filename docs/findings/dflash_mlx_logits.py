# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""dflash-mlx 0.1.8 with mlx-lm 0.32: logits of one token by verify_block and by the model itself.

pip install --no-deps -r conformance/peers/dflash-mlx.txt   # mlx-lm 0.31.3
python docs/findings/dflash_mlx_logits.py gdn-equal         # see dflash_mlx_equal_heads.py
pip install --no-deps mlx-lm==0.32.2                        # what pip resolves by itself
python docs/findings/dflash_mlx_logits.py gdn-equal
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from dflash_mlx.runtime import VerifyConfig
from dflash_mlx.runtime.loading import load_target_bundle

bundle = load_target_bundle(sys.argv[1], lazy=False, verify_config=VerifyConfig())
ops, model = bundle.target_ops, bundle.model


def prefilled():
    """Caches after a prompt."""
    caches = ops.make_cache(model, enable_speculative_linear_cache=True)
    model(mx.array([[11, 12, 13, 14, 15]]), cache=caches)
    return caches


verified, _ = ops.verify_block(
    target_model=model,
    verify_ids=mx.array([[6]]),
    target_cache=prefilled(),
    capture_layer_ids={1},
)
stepped = model(mx.array([[6]]), cache=prefilled())
wrapper = ops.text_wrapper(model)
print("mlx-lm", version("mlx-lm"), "text_wrapper:", type(wrapper).__name__, end=", ")
print("tie_word_embeddings:", getattr(wrapper.args, "tie_word_embeddings", "absent"), end=", ")
print(f"logits off by {mx.abs(verified - stepped).max().item():.3g}", end=", ")
print("argmax", verified.argmax().item(), "and", stepped.argmax().item())
