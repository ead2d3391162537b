# pyright: basic
# pyright: reportMissingImports=false
"""mlx-optiq 0.7.7: logits of its verify pass against the model's own steps.

pip install --no-deps -r conformance/peers/mlx-optiq.txt
python docs/findings/mlx_optiq_rounding.py gdn   # python -m reference_models write gdn gdn
"""

import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from optiq.runtime.mtp.gdn_capture import forward_with_gdn_capture

model, _ = load_model(Path(sys.argv[1]))
prompt = mx.array([[100, 101, 102, 32, 115, 112, 97]])
for tokens in ([5], [5, 6, 7, 8]):
    steps, block = make_prompt_cache(model), make_prompt_cache(model)
    model(prompt, cache=steps)
    model(prompt, cache=block)
    plain = mx.concatenate([model(mx.array([[t]]), cache=steps) for t in tokens], axis=1)
    verified, _ = forward_with_gdn_capture(model, mx.array([tokens]), cache=block)
    off = mx.abs(plain - verified)
    differing = (off > 0).sum().item()
    print(f"{len(tokens)} rows: {differing} of {off.size} logits differ, by up to {off.max():.1e}")
