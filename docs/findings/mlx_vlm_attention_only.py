# pyright: basic
# pyright: reportMissingImports=false
"""mlx-vlm 0.7.10: qwen3_5 without a recurrent layer.

pip install --no-deps -r conformance/peers/mlx-vlm.txt
python docs/findings/mlx_vlm_attention_only.py attn   # reference_models write attn attn
"""

import sys
from pathlib import Path

import mlx.core as mx
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.utils import load_model

model = load_model(Path(sys.argv[1])).language_model
try:
    print(model(mx.array([[1, 2, 3]]), cache=make_prompt_cache(model)).logits.shape)
except TypeError as error:
    print("TypeError:", error)
