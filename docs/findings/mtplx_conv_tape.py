# pyright: basic
# pyright: reportMissingImports=false
# The runtime's types are not at hand in this project:
"""mtplx 2.12.2: verify_core="linear-gdn-from-conv-tape", its server's default, without Metal.

The tokens of its own plain loop, and of generate_mtpk with either core.

    pip install --no-deps -r conformance/peers/mtplx.txt
    python docs/findings/mtplx_conv_tape.py reference_models/trained/qwen3_5-bytes
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
os.environ["MTPLX_CONTEXT_COPY"] = "0"  # the head's drafts alone

from mtplx import generation  # noqa: E402
from mtplx.runtime import load  # noqa: E402
from mtplx.sampling import SamplerConfig  # noqa: E402

ctypes.CDLL = CDLL
runtime = load(sys.argv[1])
options = {"max_tokens": 48, "sampler": SamplerConfig(temperature=0.0), "stop_token_ids": set()}
prompt = list(__doc__.encode())
plain = generation.generate_ar(runtime, prompt, **options).tokens
print("plain:", repr(bytes(plain).decode()))
for core in ("stock", "linear-gdn-from-conv-tape"):
    for depth in (1, 3):
        made = generation.generate_mtpk(
            runtime,
            prompt,
            speculative_depth=depth,
            verify_strategy="capture_commit",
            verify_core=core,
            **options,
        )
        rejects = sum(e["accepted_depths"] < len(e["drafts"]) for e in made.stats.events)
        same = next(
            (i for i, (a, b) in enumerate(zip(made.tokens, plain, strict=False)) if a != b),
            len(plain),
        )
        print(
            f"{core}, K={depth}: {rejects} rounds with a reject, {same} of {len(plain)} tokens right"
        )
