"""dflash-mlx's own plain loop as an arm of a benchmark: K=0 alone.

    python dflash_mlx.py < SPEC          (in an environment with dflash-mlx)

`stream_baseline_generate`, the loop that it measures its drafting against and falls back to. What
it drafts with is a DFlash drafter, a checkpoint of its own: it reads no MTP head, and its copying
from the prompt is a part of the drafter's loop.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from measuring import serve


class DflashMlx:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        from dflash_mlx.runtime import VerifyConfig
        from dflash_mlx.runtime.loading import load_target_bundle

        if k:
            raise ValueError(
                "dflash-mlx drafts with a DFlash drafter alone, never with an MTP head"
            )
        self._bundle = load_target_bundle(folder, lazy=False, verify_config=VerifyConfig())

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        from dflash_mlx.engine.events import TokenEvent
        from dflash_mlx.engine.fallback import stream_baseline_generate

        events = stream_baseline_generate(
            target_model=self._bundle.model,
            target_ops=self._bundle.target_ops,
            tokenizer=None,
            prompt="",
            max_new_tokens=tokens,
            prompt_tokens_override=prompt,
        )
        for event in events:
            if isinstance(event, TokenEvent):
                yield event.token_id

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return []


if __name__ == "__main__":
    serve(("dflash-mlx", "mlx", "mlx-lm"), DflashMlx)
