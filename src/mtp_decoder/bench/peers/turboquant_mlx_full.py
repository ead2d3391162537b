"""turboquant-mlx-full's own MTP loop as an arm of a benchmark; at K=0 what its command line runs.

    python turboquant_mlx_full.py < SPEC      (in an environment with turboquant-mlx-full)

`speculative_generate`, which drafts one token a round, on what its converter keeps of the head;
at K=0 mlx-lm's `generate_step`. Acceptance is what the loop says of its tokens.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from measuring import serve


class TurboquantMlxFull:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from mlx_lm.utils import load_model
        from turboquant_mlx.compat import get_model_classes

        if k > 1:
            raise ValueError("turboquant-mlx-full drafts one token a round")
        self._k = k
        self._model: Any = load_model(folder, get_model_classes=get_model_classes)[0]
        self._said: list[bool] = []
        if k:
            self._head = _head(folder, self._model)

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        if not self._k:
            from mlx_lm.generate import generate_step

            for token, _ in generate_step(mx.array(prompt), self._model, max_tokens=tokens):
                yield int(token)
            return
        from turboquant_mlx.mtp import speculative_generate

        self._said = []
        inner = self._model.language_model
        parts = inner.model, self._head, inner.model.embed_tokens, inner.lm_head
        settings: dict[str, Any] = {"max_tokens": tokens, "make_cache": self._model.make_cache}
        for token, drafted in speculative_generate(mx.array([prompt]), *parts, **settings):
            self._said.append(drafted)
            yield token

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        after = zip(self._said, self._said[1:], strict=False)
        return [(1, int(drafted)) for before, drafted in after if not before]


def _head(folder: Path, model: Any) -> Any:
    """The drafter, its tensors by way of the shard that a conversion would have."""
    from turboquant_mlx import mtp

    with tempfile.TemporaryDirectory() as converted:
        mtp.preserve_mtp(str(folder), converted)
        tensors = mtp.load_mtp(converted)
        mx.eval(tensors)
    head = mtp.MTPHead(model.language_model.args)
    head.load(tensors)
    return head


if __name__ == "__main__":
    serve(("turboquant-mlx-full", "mlx-lm", "mlx"), TurboquantMlxFull)
