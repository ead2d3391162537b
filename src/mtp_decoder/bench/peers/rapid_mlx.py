"""rapid-mlx's own MTP loop, parked at K=0, as an arm of a benchmark.

    python rapid_mlx.py < SPEC          (in an environment with rapid-mlx)

`mtp_generate_step` as its scheduler calls it for one request, with `disable_auto_k` and without
prompt lookup, so that the head drafts `max_k` tokens every round. Acceptance is what it reports to
its accept counter for every verify pass.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from measuring import serve


class RapidMlx:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from mlx_lm.utils import load_model
        from rapid_mlx.spec_decode.mtp.dispatch import dispatch_mtp_inject

        self._k = k
        model: Any = load_model(folder)[0]
        kind = json.loads((folder / "config.json").read_text())["model_type"]
        with tempfile.TemporaryDirectory() as name:
            sidecar = Path(name) / "mtp.safetensors"
            mx.save_safetensors(str(sidecar), _head(folder / "model.safetensors"))
            if not dispatch_mtp_inject(model, kind, mtp_sidecar=sidecar):
                raise ValueError("rapid-mlx refuses the checkpoint's head")
            mx.eval(model.parameters())
        self._model = model.language_model
        self._rounds: list[tuple[int, int]] = []

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        from rapid_mlx.spec_decode.mtp.accept_counter import MTPAcceptCounter
        from rapid_mlx.spec_decode.mtp.generator import mtp_generate_step

        rounds = self._rounds = []

        class Counter(MTPAcceptCounter):
            def record_verify(self, depth: int, accepted: int) -> None:
                rounds.append((depth, accepted))
                super().record_verify(depth, accepted)

        settings = {"max_tokens": tokens, "max_k": self._k, "disable_auto_k": True}
        settings |= {"prompt_lookup_enabled": False, "accept_counter": Counter()}
        for token, _, _ in mtp_generate_step(mx.array(prompt), self._model, **settings):
            yield int(token)

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return self._rounds


def _head(file: Path) -> dict[str, mx.array]:
    """The head with its norms raised by one, which rapid-mlx takes for granted in a head's file."""
    stored: Any = mx.load(str(file))
    head = {name: array for name, array in stored.items() if name.startswith("mtp.")}
    return {name: array + 1 if array.ndim == 1 else array for name, array in head.items()}


if __name__ == "__main__":
    serve(("rapid-mlx", "mlx", "mlx-lm"), RapidMlx)
