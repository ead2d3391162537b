"""mlx-vlm's own MTP loop, or its plain one at K=0, as an arm of a benchmark.

    python mlx_vlm.py < SPEC          (in an environment with mlx-vlm)

`generate_step` with `draft_kind="mtp"` and a block of K + 1, as its server calls it. Its loop has
no clock by phase. Acceptance is what its drafter counts (`accept_lens`).
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Run as a script, this folder would be where `import mlx_vlm` finds this very file.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

import mlx.core as mx  # noqa: E402  (after the line above)


def decode(model: Any, drafter: Any, prompt: list[int], k: int, tokens: int) -> dict[str, Any]:
    """Decode so many tokens after a prompt; returns the measured fields of a row."""
    from mlx_vlm.generate.ar import generate_step

    settings: dict[str, Any] = {"max_tokens": tokens, "temperature": 0.0}
    if k:
        settings |= {"draft_model": drafter, "draft_kind": "mtp", "draft_block_size": k + 1}
        drafter.accept_lens = []
    mx.reset_peak_memory()
    emitted = generate_step(mx.array([prompt]), model, None, None, **settings)
    found = [int(next(emitted)[0])]
    start = time.perf_counter()
    found += [int(token) for token, _ in emitted]
    seconds = time.perf_counter() - start
    accepted = list(drafter.accept_lens) if k else []
    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "prompt_tokens": len(prompt),
        "tokens": len(found),
        "decode_seconds": seconds,
        "tokens_digest": hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16],
        "bytes": {"remembered": 0, "peak": mx.get_peak_memory(), "resident": resident},
        "seconds": {},
        "rounds": len(accepted),
        "rewinds": sum(a < k for a in accepted),
        "drafted_by_depth": [len(accepted)] * k,
        "accepted_by_depth": [sum(a > j for a in accepted) for j in range(k)],
        "experts_read": {},
    }


def main() -> None:
    """Read a specification, print rows."""
    if sys.argv[1:] == ["--versions"]:
        print(", ".join(f"{name} {version(name)}" for name in ("mlx-vlm", "mlx")))
        return
    from mlx_vlm.speculative.drafters import load_drafter
    from mlx_vlm.utils import load_model

    spec = json.load(sys.stdin)
    if spec["device"] is not None:
        mx.set_default_device(getattr(mx, spec["device"]))
    folder, k = Path(spec["folder"]), spec["k"]
    model = load_model(folder)
    drafter = load_drafter(str(folder))[0] if k else None
    if drafter is not None:
        drafter.prefer_requested_block_size = True  # every round has K drafts
    for name, prompt in spec["prompts"].items():
        if spec["warm_up"]:
            decode(model, drafter, prompt, k, spec["warm_up"])
        for repeat in range(spec["repeats"]):
            row = decode(model, drafter, prompt, k, spec["tokens"])
            print(json.dumps({"workload": name, "repeat": repeat, **row}), flush=True)


if __name__ == "__main__":
    main()
