# pyright: basic
# pyright: reportMissingImports=false
"""mlx-optiq 0.7.7: the layers of the head that run.

pip install --no-deps -r conformance/peers/mlx-optiq.txt
python docs/findings/mlx_optiq_head_layers.py gdn-mtp2   # reference_models write gdn-mtp2 ...
"""

import sys

import mlx.core as mx
from mlx.utils import tree_map
from optiq.runtime.mtp.runtime import load

model = load(sys.argv[1]).model.language_model
mx.random.seed(0)
hidden, token = mx.random.normal((1, 1, 32)), mx.array([[100]])
before = model.mtp_forward(hidden, token)
print("layers of the head:", len(model.mtp.layers))
for i, layer in reversed(list(enumerate(model.mtp.layers))):
    layer.update(tree_map(mx.zeros_like, layer.parameters()))
    off = mx.abs(model.mtp_forward(hidden, token) - before).max().item()
    print(f"layer {i} zeroed: the head's logits change by up to {off:.2g}")
