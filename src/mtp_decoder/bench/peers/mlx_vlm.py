"""mlx-vlm's own MTP loop, or its plain one at K=0, as an arm of a benchmark.

    python mlx_vlm.py < SPEC          (in an environment with mlx-vlm)

`generate_step` with `draft_kind="mtp"` and a block of K + 1, as its server calls it. Acceptance is
what its drafter counts (`accept_lens`).
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from measuring import serve


class MlxVlm:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from mlx_vlm.speculative.drafters import load_drafter
        from mlx_vlm.utils import load_model

        self._k = k
        self._model = load_model(folder)
        self._settings: dict[str, Any] = {}
        if k:
            self._drafter = load_drafter(str(folder))[0]
            self._drafter.prefer_requested_block_size = True  # every round has K drafts
            named = {"draft_kind": "mtp", "draft_block_size": k + 1}
            self._settings = {"draft_model": self._drafter, **named}

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        from mlx_vlm.generate.ar import generate_step

        if self._k:
            self._drafter.accept_lens = []
        settings = {"max_tokens": tokens, "temperature": 0.0, **self._settings}
        for token, _ in generate_step(mx.array([prompt]), self._model, None, None, **settings):
            yield int(token)

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return [(self._k, int(n)) for n in self._drafter.accept_lens] if self._k else []


if __name__ == "__main__":
    serve(("mlx-vlm", "mlx"), MlxVlm)
