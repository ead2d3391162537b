# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""rapid-mlx 0.16.10: rows in the head's cache against rows in the target's.

They are as many after the prefill, and stay so in an aligned head. (1) as installed: with an lm_head that is
not quantised the head runs twice a draft. (2) with mtp_greedy hidden, which avoids (1): a round
with a reject trims one row too many.

    pip install --no-deps -r conformance/peers/rapid-mlx.txt
    python docs/findings/rapid_mlx_head_history.py gdn-agree   # reference_models write gdn-agree ...
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from rapid_mlx.spec_decode.mtp.dispatch import dispatch_mtp_inject
from rapid_mlx.spec_decode.mtp.generator import mtp_generate_step

model: Any = load_model(Path(sys.argv[1]))[0]
weights: Any = mx.load(f"{sys.argv[1]}/model.safetensors")
head = {n: a + 1 if a.ndim == 1 else a for n, a in weights.items() if n.startswith("mtp.")}
with tempfile.TemporaryDirectory() as folder:  # head weights as converted for mlx: norms + 1
    mx.save_safetensors(f"{folder}/mtp.safetensors", head)
    assert dispatch_mtp_inject(model, "qwen3_5", mtp_sidecar=f"{folder}/mtp.safetensors")
    mx.eval(model.parameters())


class WithoutGreedy:
    """The model, its mtp_greedy hidden."""

    mtp_greedy = None

    def __getattr__(self, name):
        return getattr(model.language_model, name)

    def __call__(self, *args, **options):
        """As the model's."""
        return model.language_model(*args, **options)


def show(name, model, k):
    """Decode with k drafts a round and count after some rounds."""
    target, head = make_prompt_cache(model), model.make_mtp_cache()
    attention = next(cache for cache in target if hasattr(cache, "keys"))
    steps = mtp_generate_step(
        mx.array([*range(40, 60)]),
        model,
        max_tokens=200,
        max_k=k,
        disable_auto_k=True,
        prompt_lookup_enabled=False,
        prompt_cache=target + head,
    )
    rounds = rejects = accepted = 0
    for _, _, from_draft in steps:
        accepted += from_draft
        if from_draft:
            continue
        rejects += rounds > 0 and accepted < k
        if rounds == 32:
            # The next k drafts are made: the head wrote the last token's row, and k-1 of drafts.
            held, due = head[0].offset - (k - 1), attention.offset
            print(
                f"{name}, K={k}: {rejects} rounds of 32 with a reject, target holds {due}, head {held}"
            )
        rounds, accepted = rounds + 1, 0


for k in (1, 3):
    show("(1) as installed", model.language_model, k)
    show("(2) without mtp_greedy", WithoutGreedy(), k)
