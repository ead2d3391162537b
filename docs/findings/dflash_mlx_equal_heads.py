# pyright: basic
# pyright: reportMissingImports=false
"""Write the same model with its query and key heads repeated to one for each value head.

The function it computes is the same. The other scripts of dflash-mlx need it, because of
finding dflash-mlx-2.

    python -m reference_models write gdn gdn                     # in this project; or --dtype
    python docs/findings/dflash_mlx_equal_heads.py gdn gdn-equal   # needs mlx alone
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
shutil.copytree(source, folder, dirs_exist_ok=True)
config = json.loads((source / "config.json").read_text())
text = config["text_config"]
keys, values = text["linear_num_key_heads"], text["linear_num_value_heads"]
width = text["linear_key_head_dim"]


def repeat(rows: mx.array) -> mx.array:
    """Each head's rows, as often as it has value heads."""
    heads = rows.reshape(keys, width, -1)
    return mx.repeat(heads, values // keys, axis=0).reshape(-1, *rows.shape[1:])


weights: Any = mx.load(str(source / "model.safetensors"))
for name, rows in weights.items():
    if name.endswith(("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight")):
        q, k, v = mx.split(rows, [keys * width, 2 * keys * width], axis=0)
        weights[name] = mx.concatenate([repeat(q), repeat(k), v], axis=0)
mx.save_safetensors(str(folder / "model.safetensors"), weights)
text["linear_num_key_heads"] = values
(folder / "config.json").write_text(json.dumps(config))
