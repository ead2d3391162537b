# pyright: basic
"""mlx-lm 0.32.2: its quantised cache takes 3, 5 and 6 bits for some head sizes alone.

pip install --no-deps -r conformance/peers/mlx-lm.txt
python docs/findings/mlx_lm_kv_bits.py
"""

import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache

for bits in (2, 3, 4, 5, 6, 8):
    for size in (64, 128, 256):
        rows = mx.ones((1, 2, 5, size))
        try:
            QuantizedKVCache(group_size=64, bits=bits).update_and_fetch(rows, rows)
        except ValueError as error:
            print(f"bits={bits}, head size {size}: {error}")
