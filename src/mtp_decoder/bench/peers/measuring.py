"""What every arm of another runtime does alike: read a specification, time a loop, print rows.

A file beside this one is a runtime. It says `from measuring import Loop, serve` before any package
of the runtime: run as a script, its folder is where Python looks first, and importing this module
takes it away again, or `import mlx_vlm` would find the arm and not the runtime.

The clock is `bench/worker.py`'s: from the moment the first token is handed out to the moment the
last one is.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]

import mlx.core as mx  # noqa: E402  (after the line above)


class Loop(Protocol):
    """A runtime with a model loaded, asked for K drafts a round."""

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """Greedy tokens after a prompt as the runtime hands them out, on caches of its own."""
        ...

    def rounds(self) -> Sequence[tuple[int, int]]:
        """Drafts made and accepted in every round of the last decoding, by its own counting."""
        ...


def one_of_a_batch(model: Any, prompt: list[int], tokens: int) -> Iterator[int]:
    """Greedy tokens of mlx-lm's `BatchGenerator` with one sequence, for runtimes that patch it."""
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(model)
    generator.insert([prompt], max_tokens=[tokens])
    while responses := generator.next_generated():
        yield from (response.token for response in responses)
    generator.close()


def take(loop: Loop, prompt: list[int], tokens: int) -> dict[str, Any]:
    """Decode so many tokens after a prompt; returns the measured fields of a row."""
    mx.reset_peak_memory()
    emitted = loop.decode(prompt, tokens)
    found = [next(emitted)]
    start = time.perf_counter()
    found += emitted
    seconds = time.perf_counter() - start
    rounds = loop.rounds()
    deepest = max((drafted for drafted, _ in rounds), default=0)
    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "prompt_tokens": len(prompt),
        "tokens": len(found),
        "decode_seconds": seconds,
        "tokens_digest": hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16],
        "bytes": {"remembered": 0, "peak": mx.get_peak_memory(), "resident": resident},
        "seconds": {},
        "rounds": len(rounds),
        "rewinds": sum(accepted < drafted for drafted, accepted in rounds),
        "drafted_by_depth": [sum(d > j for d, _ in rounds) for j in range(deepest)],
        "accepted_by_depth": [sum(a > j for _, a in rounds) for j in range(deepest)],
        "experts_read": {},
    }


def serve(packages: Sequence[str], opened: Callable[[Path, int], Loop]) -> None:
    """Print versions if asked to (`--versions`), else the rows of a specification.

    Args:
        packages: whose versions belong to a row, the runtime's own first.
        opened: from a checkpoint folder and K to a loop.
    """
    if sys.argv[1:] == ["--versions"]:
        print(", ".join(f"{name} {version(name)}" for name in packages))
        return
    spec = json.load(sys.stdin)
    if spec["device"] is not None:
        mx.set_default_device(mx.Device(getattr(mx, spec["device"])))
    loop = opened(Path(spec["folder"]), spec["k"])
    for name, prompt in spec["prompts"].items():
        if spec["warm_up"]:
            take(loop, prompt, spec["warm_up"])
        for repeat in range(spec["repeats"]):
            row = take(loop, prompt, spec["tokens"])
            print(json.dumps({"workload": name, "repeat": repeat, **row}), flush=True)
