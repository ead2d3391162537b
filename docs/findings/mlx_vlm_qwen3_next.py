# pyright: basic
# pyright: reportMissingImports=false
"""mlx-vlm 0.7.10: qwen3_next with its MTP head.

pip install --no-deps -r conformance/peers/mlx-vlm.txt
python docs/findings/mlx_vlm_qwen3_next.py gdn-next   # reference_models write gdn-next ...
"""

import sys
import traceback
from pathlib import Path

import mlx.core as mx
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.speculative.drafters import load_drafter
from mlx_vlm.utils import load_model

model = load_model(Path(sys.argv[1]))
drafter, kind = load_drafter(sys.argv[1])
print("load_drafter:", type(drafter).__name__, kind)
prompt = mx.array([[5, 9, 31, 7, 77, 3]])
for options in ({}, {"draft_model": drafter, "draft_kind": kind, "draft_block_size": 3}):
    steps = generate_step(prompt, model, None, None, max_tokens=4, temperature=0.0, **options)
    try:
        print("with" if options else "without", "drafter:", [int(token) for token, _ in steps])
    except TypeError as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{'/'.join(Path(line.filename).parts[-2:])}:{line.lineno}"
        print(f"with drafter: {where}: TypeError: {error}")
