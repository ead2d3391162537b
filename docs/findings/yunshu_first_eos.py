# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""yunshu 0.1.5: an end of text that is the first token.

pip install --no-deps -r conformance/peers/yunshu.txt
python docs/findings/yunshu_first_eos.py gdn   # python -m reference_models write gdn gdn
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from yunshu_engine.mtp_decoder import MTPDecoder
from yunshu_engine.mtp_patch import load_model_with_mtp
from yunshu_engine.n_confirmed_patch import apply_n_confirmed_patch

apply_n_confirmed_patch()
source, folder = Path(sys.argv[1]), Path(tempfile.mkdtemp())
weights: Any = mx.load(str(source / "model.safetensors"))
head = {name: array for name, array in weights.items() if name.startswith("mtp.")}
for name in ("config.json", "model.safetensors"):
    (folder / name).symlink_to((source / name).resolve())
mx.save_safetensors(str(folder / "mtp-weights.safetensors"), head)
model = load_model_with_mtp(str(folder))


class Tokenizer:
    """All that the decoder asks of one."""

    eos_token_id = None


def generate():
    """Five tokens at most."""
    prompt = [100, 101, 102, 32, 115, 112, 97, 114, 101, 40, 41]
    return MTPDecoder(model, Tokenizer()).generate(prompt, max_tokens=5)


free = generate()
print("no end in sight:", free)
for at in (0, 2):
    Tokenizer.eos_token_id = free[at]
    print(f"end of text {free[at]}: {generate()}, due {free[: at + 1]}")
