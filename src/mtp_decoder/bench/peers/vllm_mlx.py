"""vllm-mlx's batch generator of one request as an arm of a benchmark, with its MTP or without.

    python vllm_mlx.py < SPEC         (in an environment with vllm-mlx)

`MLLMBatchGenerator`, after `install_mtp_mllm` where K is 1, as its scheduler has them: its text
lane drafts nothing with this mlx-lm. Acceptance is what `get_mtp_stats` counts. It runs a round
before it hands out the token the round begins with, so one round is counted beyond the last.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from measuring import serve


class VllmMlx:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from mlx_lm.utils import load_model

        if k > 1:
            raise ValueError("vllm-mlx drafts one token a round")
        self._k = k
        self._stats: dict[str, Any] = {}
        self._model: Any = load_model(folder)[0]
        if k:
            _add_head(self._model, folder)

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it.

        Raises:
            RuntimeError: the runtime went on after an error of its own.
        """
        from vllm_mlx.mllm_batch_generator import (
            MLLMBatchGenerator,
            MLLMBatchRequest,
            install_mtp_mllm,
        )

        target = self._model.language_model
        owner = SimpleNamespace(language_model=target)
        generator: Any = MLLMBatchGenerator(owner, None, enable_vision_cache=False)
        if self._k:
            install_mtp_mllm(generator, target, num_draft_tokens=self._k)
        settings: dict[str, Any] = {"max_tokens": tokens, "temperature": 0.0}
        ids = mx.array([prompt])
        generator.insert([MLLMBatchRequest(0, "0", "", input_ids=ids, **settings)])
        while responses := generator.next():
            if responses[-1].finish_reason == "error":
                raise RuntimeError("vllm-mlx failed; its log says how")
            yield from (int(response.token) for response in responses)
            if responses[-1].finish_reason:
                break
        if self._k:
            self._stats = generator.get_mtp_stats()
            if self._stats["errors"]:
                raise RuntimeError("vllm-mlx swallowed an error of draft or verify")

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it, the accepted ones first: it counts them in all."""
        counted = self._stats
        return [(1, 1)] * counted["accepted"] + [(1, 0)] * counted["rejected"] if counted else []


def _add_head(model: Any, folder: Path) -> None:
    """Give a model the head of its checkpoint, from a folder laid out as the runtime asks."""
    from vllm_mlx.patches.qwen3_5_mtp import inject_mtp_support

    weights: Any = mx.load(str(folder / "model.safetensors"))
    head = {name: array for name, array in weights.items() if name.startswith("mtp.")}
    config = json.loads((folder / "config.json").read_text())
    with tempfile.TemporaryDirectory() as derived:
        (Path(derived) / "mtp").mkdir()
        mx.save_safetensors(str(Path(derived) / "mtp" / "weights.safetensors"), head)
        if not inject_mtp_support(model, derived, config):
            raise ValueError("vllm-mlx does not take the head of this checkpoint")
        mx.eval(model.parameters())


if __name__ == "__main__":
    serve(("vllm-mlx", "mlx-lm", "mlx-vlm", "mlx"), VllmMlx)
