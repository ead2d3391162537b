"""mlx-beam's own verify cycle, or its plain step at K=0, as an arm of a benchmark.

    python mlx_beam.py < SPEC          (in an environment with mlx-beam)

The `BatchGenerator` that its engine's worker steps, one row in it, with the checkpoint's head as
`BundledHeadProposer` and the block verify, its server's default. Acceptance is what each cycle
reports to its `Regulator`, which holds the depth at K (`fixed`).
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from measuring import serve


class MlxBeam:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from mlx_beam._vendor.mlx_lm.utils import load_model
        from mlx_beam.engine.proposer import BundledHeadProposer
        from mlx_beam.engine.speculative import Speculator

        self._model: Any = load_model(folder)[0]
        self._rounds: list[tuple[int, int]] = []
        self._speculator: Any = None
        if k:
            head, info = _load_head(self._model, folder)
            proposer = BundledHeadProposer(self._model, head, k, info)
            self._speculator = Speculator(proposer, k, lambda _uid, _tokens: True)
            regulator = self._speculator.regulator
            regulator.fixed = k
            observe = regulator.observe_cycle

            def count(drafted: int, accepted: int, seconds: float, **said: bool) -> None:
                self._rounds.append((drafted, accepted))
                observe(drafted, accepted, seconds, **said)

            regulator.observe_cycle = count

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        from mlx_beam._vendor.mlx_lm.generate import BatchGenerator
        from mlx_beam.engine.kv import KVPolicy, make_request_cache
        from mlx_beam.engine.priming import PrimingPromptBatch
        from mlx_beam.engine.speculative import SpeculativeGenerationBatch

        self._rounds.clear()
        speculator = self._speculator
        generator = BatchGenerator(
            self._model,
            generation_batch=SpeculativeGenerationBatch.bound(speculator),
            prompt_batch=PrimingPromptBatch,
        )
        cache = make_request_cache(self._model, KVPolicy())
        (uid,) = generator.insert([prompt], max_tokens=[tokens], caches=[cache])
        if speculator:
            speculator.proposer.begin(uid, len(prompt), None)
        finished = False
        while not finished:
            for response in generator.next()[1]:
                finished = response.finish_reason is not None
                yield int(response.token)
        if speculator:
            speculator.proposer.drop(uid)
        generator.close()

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return list(self._rounds)


def _load_head(model: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The head from a folder that names its file, as `load_bundled_head` wants an index else."""
    from mlx_beam.engine.proposer import load_bundled_head

    stored: Any = mx.load(str(folder / "model.safetensors"))
    tensors = {name: array for name, array in stored.items() if name.startswith("mtp.")}
    with tempfile.TemporaryDirectory() as name:
        apart = Path(name)
        mx.save_safetensors(str(apart / "mtp.safetensors"), tensors)
        config = json.loads((folder / "config.json").read_text())
        (apart / "config.json").write_text(json.dumps(config | {"mtp_file": "mtp.safetensors"}))
        return load_bundled_head(model, apart)


if __name__ == "__main__":
    serve(("mlx-beam", "mlx"), MlxBeam)
