# pyright: basic
# pyright: reportMissingImports=false
"""mlx-lm 0.32.2: qwen3_5 without a recurrent layer.

pip install --no-deps -r conformance/peers/mlx-lm.txt
python docs/findings/mlx_lm_attention_only.py
"""

import traceback

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.qwen3_5 import TextModel, TextModelArgs

for interval in (2, 1):  # every second layer has full attention; every layer
    model = TextModel(
        TextModelArgs(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            vocab_size=260,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            full_attention_interval=interval,
        )
    )
    try:
        logits = model(mx.array([[1, 2, 3]]), cache=make_prompt_cache(model))
        print(f"full_attention_interval={interval}: logits {logits.shape}")
    except TypeError:
        print(f"full_attention_interval={interval}:", traceback.format_exc().splitlines()[-1])
