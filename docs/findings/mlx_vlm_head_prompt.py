# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-vlm 0.7.10: how much of the prompt the MTP head is shown.

pip install --no-deps -r conformance/peers/mlx-vlm.txt
python docs/findings/mlx_vlm_head_prompt.py gdn   # python -m reference_models write gdn gdn
"""

import sys
from pathlib import Path

import mlx.core as mx
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.speculative.drafters import load_drafter
from mlx_vlm.utils import load_model

model = load_model(Path(sys.argv[1]))
PROMPT = list(b"def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n")
for options in ({}, {"prefill_step_size": None}):
    drafter, kind = load_drafter(sys.argv[1])
    prefill = drafter.prefill_from_target_hidden

    def shown(ids, hidden, *args, prefill=prefill, options=options, **more):
        """Count, and go on."""
        print(f"{options or 'default'}: prompt of {len(PROMPT)}, the head is shown {ids.shape[1]}")
        return prefill(ids, hidden, *args, **more)

    drafter.prefill_from_target_hidden = shown
    drafting = {"draft_model": drafter, "draft_kind": kind, "draft_block_size": 4}
    for _ in generate_step(
        mx.array([PROMPT]), model, None, None, max_tokens=8, temperature=0.0, **drafting, **options
    ):
        pass
