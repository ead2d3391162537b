# pyright: basic
# pyright: reportMissingImports=false
"""transformers 5.24.0: DynamicCache.crop on models with recurrent layers.

pip install torch==2.13.0 transformers==5.24.0
python docs/findings/transformers_crop.py gdn          # reference_models write gdn ...
python docs/findings/transformers_crop.py flash-next
"""

import sys
import traceback
import warnings
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
prompt, rejected, anchor = [100, 101, 102, 32, 114, 101, 119, 105, 110], [7, 8, 9], [40]


def run(cache, tokens):
    """Logits of the last token, and the cache."""
    with torch.no_grad():
        return model(torch.tensor([tokens]), cache=cache, use_cache=True).logits[0, -1]


due, cropped = DynamicCache(config=model.config), DynamicCache(config=model.config)
cropped.activate_past_recording()
for cache in (due, cropped):
    run(cache, prompt)
run(cropped, rejected)
print("is_croppable:", cropped.is_croppable)
try:
    cropped.crop(-len(rejected))
except (TypeError, RuntimeError) as error:
    line = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(line.filename).name}:{line.lineno}"
    print(f"crop(-3): {where}: {type(error).__name__}: {error}")
    sys.exit()
for index, (found, right) in enumerate(zip(cropped.layers, due.layers, strict=True)):
    if hasattr(right, "recurrent_states"):
        recurrent = (found.recurrent_states[0] - right.recurrent_states[0]).abs().max()
        conv = (found.conv_states[0] - right.conv_states[0]).abs().max()
        print(f"layer {index}: convolution off by {conv:.1e}, recurrent state by {recurrent:.1e}")
    else:
        print(f"layer {index}: keys off by {(found.keys - right.keys).abs().max():.1e}")
apart = (run(cropped, anchor) - run(due, anchor)).abs().max()
print(f"next logits off by {apart:.1e}")
