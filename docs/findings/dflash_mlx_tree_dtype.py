# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""dflash-mlx 0.1.8: data types after a tree verify of a bfloat16 model, without Metal.

A chain of two drafts is verified as a tree, nothing is accepted, the caches are restored. For each
prompt: types that the pass gives, types that the caches hold before and after.

    pip install --no-deps -r conformance/peers/dflash-mlx.txt
    python docs/findings/dflash_mlx_tree_dtype.py gdn-bf16   # write gdn gdn-bf16 --dtype bfloat16
"""

import sys

import mlx.core as mx
from dflash_mlx.engine.ddtree import build_flat_ddtree, build_flat_tree_inputs
from dflash_mlx.runtime import VerifyConfig
from dflash_mlx.runtime.loading import load_target_bundle

bundle = load_target_bundle(sys.argv[1], lazy=False, verify_config=VerifyConfig())
ops, model = bundle.target_ops, bundle.model
chain = build_flat_ddtree(top_token_ids_desc=[[7], [8]], top_scores_desc=[[0.0], [0.0]], budget=2)


def prefilled(length):
    """Caches after a prompt."""
    caches = ops.make_cache(model, enable_speculative_linear_cache=True)
    model(mx.array([[11 + i % 200 for i in range(length)]]), cache=caches)
    return caches


def names(arrays):
    """The data types, short."""
    return "/".join(sorted({str(a.dtype).removeprefix("mlx.core.") for a in arrays}))


def held(caches):
    """The types of keys and values, convolution windows, recurrent states."""
    keys = [a for c in caches if hasattr(c, "keys") for a in (c.keys, c.values)]
    windows = [c[0] for c in caches if hasattr(c, "rollback")]
    states = [c[1] for c in caches if hasattr(c, "rollback")]
    return f"K/V {names(keys)}, windows {names(windows)}, states {names(states)}"


for length in (5, 255):
    one, _ = ops.verify_block(
        target_model=model,
        verify_ids=mx.array([[6]]),
        target_cache=prefilled(length),
        capture_layer_ids={1},
    )
    caches = prefilled(length)
    before = held(caches)
    logits, hidden = ops.verify_tree_block(
        target_model=model,
        tree_inputs=build_flat_tree_inputs(chain, root_token_id=6, prefix_len=length),
        target_cache=caches,
        capture_layer_ids={1},
    )
    ops.restore_after_tree_acceptance(caches, accepted_tree_indices=[0])
    off = mx.abs(logits[0, 0] - one[0, 0].astype(mx.float32)).max().item()
    print(f"prompt of {length}: before {before}")
    print(f"  after {held(caches)}; logits {names([logits])} for {names([one])}, off by {off:.2g}")
