# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mlx-optiq 0.7.7: an end of text that is the first token.

pip install --no-deps -r conformance/peers/mlx-optiq.txt
python docs/findings/mlx_optiq_first_eos.py gdn-agree   # reference_models write gdn-agree ...
"""

import sys

from optiq.runtime.engine import OptiqEngine

engine = OptiqEngine(sys.argv[1])


def tokens(depth):
    """What a caller is given."""
    options = {"prompt_ids": [100, 101, 102, 32, 115, 112, 97], "depth": depth, "max_tokens": 5}
    return [event["token"] for event in engine.generate_stream("", **options)]


no_end = engine.tokenizer.eos_token_id
for depth in (0, 3):
    engine.tokenizer.eos_token_id = no_end
    free = tokens(depth)
    for at in (0, 2):
        engine.tokenizer.eos_token_id = free[at]
        print(f"depth {depth}, end of text {free[at]}: {tokens(depth)}, due {free[: at + 1]}")
