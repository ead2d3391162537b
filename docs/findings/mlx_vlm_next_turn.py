# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-vlm 0.7.10: two turns on one PromptCacheState with an MTP drafter in the first.

Turn 2 (prompt, turn 1's tokens, a question) is decoded without a drafter, from the state that
turn 1 left and from nothing. Rows of K=0 are printed if they differ.

    pip install --no-deps -r conformance/peers/mlx-vlm.txt
    python docs/findings/mlx_vlm_next_turn.py gdn-agree   # reference_models write gdn-agree ...
"""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate import PromptCacheState, stream_generate
from mlx_vlm.speculative.drafters import load_drafter
from mlx_vlm.utils import load_model

logging.disable(logging.WARNING)
model = load_model(Path(sys.argv[1]))


class NoEnds:
    """The stopping criteria of a tokenizer without end tokens."""

    eos_token_ids = ()

    def __call__(self, token):
        """No token ends the text."""
        return False

    def reset(self, *_):
        """Nothing to do."""

    add_eos_token_ids = reset


class NoText:
    """A detokenizer to nothing."""

    last_segment = text = ""

    def reset(self):
        """Nothing to do."""

    finalize = reset

    def add_token(self, *_, **__):
        """Nothing to do."""


tokenizer = SimpleNamespace(
    stopping_criteria=NoEnds(), all_special_ids=[], eos_token_id=None, pad_token_id=0
)
processor = SimpleNamespace(tokenizer=tokenizer, detokenizer=NoText())


def turn(ids, n, state, k=0):
    """Generate n tokens greedily, with k drafts a round."""
    options = {}
    if k:
        drafter, kind = load_drafter(sys.argv[1])
        options = {"draft_model": drafter, "draft_kind": kind, "draft_block_size": k + 1}
    made = stream_generate(
        model,
        processor,
        "",
        input_ids=mx.array([ids]),
        pixel_values=None,
        mask=None,
        max_tokens=n,
        temperature=0.0,
        prompt_cache_state=state,
        **options,
    )
    return list(made)[-1].token_ids


PROMPT = list(b"def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n")
for k in (0, 3):
    for n in range(1, 7):
        state = PromptCacheState()
        second = PROMPT + turn(PROMPT, n, state, k) + list(b"# next\n")
        said = len(state.token_ids)
        held = next(cache.offset for cache in state.cache if hasattr(cache, "offset"))
        warm, cold = turn(second, 4, state), turn(second, 4, None)
        if k or (said, warm) != (held, cold):
            text = "as cold" if warm == cold else f"{warm}, cold {cold}"
            print(f"K={k} n={n}: state says {said}, caches hold {held}; turn 2 {text}")
