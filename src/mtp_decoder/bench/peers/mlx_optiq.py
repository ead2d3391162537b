"""mlx-optiq's engine, its MTP loop or its plain one at K=0, as an arm of a benchmark.

    python mlx_optiq.py < SPEC          (in an environment with mlx-optiq)

`OptiqEngine.generate_stream` over prompt ids, as its server calls it, at a depth of K, which that
engine holds. Acceptance is what its events say of every token (`from_draft`): a round ends with
the token that was no draft. Of a last round that the budget cuts off, it has what came out.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import serve


class _Tokenizer:
    """What the engine asks of a tokenizer: nothing ends a sequence, and no text is wanted."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """No text."""
        del ids
        return ""


class MlxOptiq:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from mlx_lm.utils import load_model
        from optiq.runtime.engine import OptiqEngine

        self._k = k
        self._engine = OptiqEngine.from_loaded(load_model(folder)[0], _Tokenizer(), str(folder))
        if k and not self._engine.has_mtp:
            raise ValueError("mlx-optiq's engine finds no MTP head in this checkpoint")
        self._from_draft: list[bool] = []

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        self._from_draft = []
        settings = {"prompt_ids": prompt, "max_tokens": tokens, "depth": self._k}
        for event in self._engine.generate_stream("", **settings):
            self._from_draft.append(event["from_draft"])
            yield event["token"]

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        if not self._k:
            return []
        found, accepted = list[tuple[int, int]](), 0
        for from_draft in self._from_draft[1:]:  # the first token is the prompt's
            accepted += from_draft
            if not from_draft:
                found.append((self._k, accepted))
                accepted = 0
        return [*found, (self._k, accepted)] if accepted else found


if __name__ == "__main__":
    serve(("mlx-optiq", "mlx-lm", "mlx"), MlxOptiq)
