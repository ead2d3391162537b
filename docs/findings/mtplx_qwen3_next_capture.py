# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mtplx 2.12.2: verify_strategy="capture_commit", its server's default, on qwen3_next.

pip install --no-deps -r conformance/peers/mtplx.txt
python docs/findings/mtplx_qwen3_next_capture.py gdn-next   # reference_models write gdn-next ...
"""

import ctypes
import os
import sys
import time
from types import SimpleNamespace

CDLL = ctypes.CDLL


def cdll(name, *args, **options):
    """A clock in place of libSystem, which mtplx asks for one at import."""
    if not str(name).startswith("/usr/lib/libSystem"):
        return CDLL(name, *args, **options)

    def timebase(ref):
        ref._obj.numer = ref._obj.denom = 1

    def now():  # not the builtin itself: mtplx sets its restype
        return time.monotonic_ns()

    return SimpleNamespace(mach_timebase_info=timebase, mach_continuous_time=now)


if os.uname().sysname != "Darwin":
    ctypes.CDLL = cdll

from mtplx import generation  # noqa: E402
from mtplx.runtime import load  # noqa: E402
from mtplx.sampling import SamplerConfig  # noqa: E402

ctypes.CDLL = CDLL
runtime = load(sys.argv[1])
options = {"max_tokens": 8, "sampler": SamplerConfig(temperature=0.0), "stop_token_ids": set()}
prompt = list(range(40, 60))
print("plain:", generation.generate_ar(runtime, prompt, **options).tokens)
for strategy in ("batched", "capture_commit"):
    try:
        made = generation.generate_mtpk(
            runtime, prompt, speculative_depth=2, verify_strategy=strategy, **options
        )
        print(f"{strategy}:", made.tokens)
    except AttributeError as error:
        print(f"{strategy}: AttributeError:", error)
