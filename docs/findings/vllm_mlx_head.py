# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""vllm-mlx 0.6.0: the cache that its head is given, and the layers of it that run.

pip install --no-deps -r conformance/peers/vllm-mlx.txt
python docs/findings/vllm_mlx_head.py gdn-mtp2   # reference_models write gdn-mtp2 gdn-mtp2
"""

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model
from vllm_mlx.mllm_batch_generator import MLLMBatchGenerator, MLLMBatchRequest, install_mtp_mllm
from vllm_mlx.patches.qwen3_5_mtp import inject_mtp_support

folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
weights: Any = mx.load(str(folder / "model.safetensors"))


class Watched:
    """A language model that notes what its head is given and says."""

    def __init__(self, zeroed):
        model, _ = load_model(folder)
        head = {
            name: mx.zeros_like(array) if zeroed and name.startswith(zeroed) else array
            for name, array in weights.items()
            if name.startswith("mtp.")
        }
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "mtp").mkdir()
            mx.save_safetensors(f"{place}/mtp/weights.safetensors", head)
            assert inject_mtp_support(model, place, config)
            mx.eval(model.parameters())
        self.model: Any = model.language_model
        self.drafts, self.caches = [], []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *args, **options):
        """As the model's."""
        return self.model(*args, **options)

    def mtp_forward(self, *args, mtp_cache=None, **options):
        """As the model's."""
        logits = self.model.mtp_forward(*args, mtp_cache=mtp_cache, **options)
        self.caches.append(mtp_cache)
        self.drafts.append(logits[0, -1].argmax().item())
        return logits


def run(zeroed=""):
    """Forty tokens."""
    model = Watched(zeroed)
    generator = MLLMBatchGenerator(
        SimpleNamespace(language_model=model), None, enable_vision_cache=False
    )
    install_mtp_mllm(generator, model)
    ids = mx.array([[*range(40, 60)]])
    generator.insert([MLLMBatchRequest(0, "0", "", max_tokens=40, temperature=0.0, input_ids=ids)])
    while generator.next():
        pass
    return model


seen = run()
print(len(seen.drafts), "drafts, made with a cache of the head:", sum(map(bool, seen.caches)))
for layer in sorted({name.split(".")[2] for name in weights if name.startswith("mtp.layers.")}):
    same = run(f"mtp.layers.{layer}.").drafts == seen.drafts
    print(f"with layer {layer} of the head zeroed the drafts are the same: {same}")
