# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""yunshu 0.1.5: MTPDecoder's greedy tokens against greedy decoding of the same model.

pip install --no-deps -r conformance/peers/yunshu.txt
python docs/findings/yunshu_rewind.py gdn   # python -m reference_models write gdn gdn
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from yunshu_engine.mtp_decoder import MTPConfig, MTPDecoder
from yunshu_engine.mtp_patch import load_model_with_mtp
from yunshu_engine.n_confirmed_patch import apply_n_confirmed_patch


class NoEnds:
    """A tokenizer without an end token."""

    eos_token_id = None


def opened():
    """The model, its head in the file that the package asks for."""
    source, folder = Path(sys.argv[1]), Path(tempfile.mkdtemp())
    weights: Any = mx.load(str(source / "model.safetensors"))
    head = {name: array for name, array in weights.items() if name.startswith("mtp.")}
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to((source / name).resolve())
    mx.save_safetensors(str(folder / "mtp-weights.safetensors"), head)
    return load_model_with_mtp(str(folder))


def greedy(model, n):
    """Step by step."""
    cache, tokens = make_prompt_cache(model), []
    logits = model(mx.array([PROMPT]), cache=cache)
    for _ in range(n):
        tokens.append(int(logits[0, -1].argmax().item()))
        logits = model(mx.array([[tokens[-1]]]), cache=cache)
    return tokens


PROMPT = [100, 101, 102, 32, 115, 112, 97, 114, 101, 40, 41]
model = opened()
plain = greedy(model, 24)
print("step by step:", plain[:5])


def show(name, use):
    """Decode, compare."""
    decoder = MTPDecoder(model, NoEnds(), MTPConfig(use_n_confirmed=use))
    made = decoder.generate(PROMPT, max_tokens=24)
    same = next((i for i in range(24) if made[i] != plain[i]), 24)
    print(f"{name}: {made[:5]}, the first {same} of 24 agree, {decoder.stats.rejects} rejects")


show("use_n_confirmed=False", False)
show("use_n_confirmed=True, the default", True)
apply_n_confirmed_patch()
model = opened()
show("that after apply_n_confirmed_patch()", True)
