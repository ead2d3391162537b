# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""dflash-mlx 0.1.8: the recurrent state after a round, where Metal is not available.

Prefill, arm, verify [anchor, *drafts] of which `a` are right, restore; then the recurrent states
against one forward pass over the tokens that stand.

    pip install --no-deps -r conformance/peers/dflash-mlx.txt
    python docs/findings/dflash_mlx_tape.py gdn gdn-equal   # folders: see dflash_mlx_equal_heads.py
"""

import sys

import mlx.core as mx
from dflash_mlx.runtime import VerifyConfig
from dflash_mlx.runtime.loading import load_target_bundle

PROMPT = [11, 12, 13, 14, 15]


def rounds(folder: str) -> None:
    """One round for each number of accepted drafts."""
    bundle = load_target_bundle(folder, lazy=False, verify_config=VerifyConfig())
    ops, model = bundle.target_ops, bundle.model

    def after(tokens):
        caches = ops.make_cache(model, enable_speculative_linear_cache=True)
        logits, _ = ops.forward_with_hidden_capture(
            model, input_ids=mx.array([tokens]), cache=caches, capture_layer_ids={1}
        )
        return caches, int(logits[0, -1].argmax().item())

    right = []
    for _ in range(6):
        right.append(after(PROMPT + right)[1])
    for a in range(4):
        caches, _ = after(PROMPT)
        drafts = right[1 : 1 + a] + [(token + 1) % 256 for token in right[1 + a : 5]]
        ops.arm_rollback(caches, prefix_len=len(PROMPT))
        ops.verify_block(
            target_model=model,
            verify_ids=mx.array([[right[0], *drafts]]),
            target_cache=caches,
            capture_layer_ids={1},
        )
        ops.restore_after_acceptance(
            caches, target_len=len(PROMPT) + 1 + a, acceptance_length=a, drafted_tokens=4
        )
        due, _ = after(PROMPT + right[: 1 + a])
        pairs = [(c[1], d[1]) for c, d in zip(caches, due, strict=True) if hasattr(c, "rollback")]
        off = max(float(mx.abs(got - want).max()) for got, want in pairs)
        size = max(float(mx.abs(want).max()) for _, want in pairs)
        print(f"  {a} of 4 accepted: states off by up to {off:.2g}, their size up to {size:.2g}")


for folder in sys.argv[1:]:
    print(folder)
    try:
        rounds(folder)
    except ValueError as error:
        print("  ValueError:", error)
