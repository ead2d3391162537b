# pyright: basic
# pyright: reportMissingImports=false
"""yunshu 0.1.5: norm gains of the head as loaded from mtp-weights.safetensors.

That file holds the mtp.* tensors of the original checkpoint, whose gains are stored as offsets
from 1.

    pip install --no-deps -r conformance/peers/yunshu.txt
    python docs/findings/yunshu_head_norms.py gdn-agree   # reference_models write gdn-agree ...
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from yunshu_engine.mtp_decoder import MTPDecoder
from yunshu_engine.mtp_patch import load_model_with_mtp
from yunshu_engine.n_confirmed_patch import apply_n_confirmed_patch

apply_n_confirmed_patch()
source = Path(sys.argv[1])
weights: Any = mx.load(str(source / "model.safetensors"))


class NoEnds:
    """A tokenizer without an end token."""

    eos_token_id = None


for offset in (0, 1):
    folder = Path(tempfile.mkdtemp())
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to((source / name).resolve())
    head = {
        name: array + offset if array.ndim == 1 else array
        for name, array in weights.items()
        if name.startswith("mtp.")
    }
    mx.save_safetensors(str(folder / "mtp-weights.safetensors"), head)
    model = load_model_with_mtp(str(folder))
    loaded = dict(tree_flatten(model.parameters()))
    print(f"head's gains stored + {offset}: means as loaded")
    for end in ("layers.0.input_layernorm.weight", "mtp.layers.0.input_layernorm.weight"):
        name = next(n for n in loaded if n.endswith(end) and ("mtp." in n) == ("mtp." in end))
        print(f"  {end} {loaded[name].mean().item():.2f}")
    accepts = rejects = 0
    for first in range(8):
        decoder = MTPDecoder(model, NoEnds())
        decoder.generate([100 + first, 101, 102, 32, 115, 112, 97], max_tokens=40)
        accepts, rejects = accepts + decoder.stats.accepts, rejects + decoder.stats.rejects
    print(f"  accepted {accepts} of {accepts + rejects} drafts")
