"""yunshu's own MTP decoder as an arm of a benchmark; at K=0 the loop that it serves with.

    python yunshu.py < SPEC           (in an environment with yunshu)

`MTPDecoder.generate`, which drafts one token a round, after `apply_n_confirmed_patch`, without
which its tokens are not the model's own; at K=0 mlx-lm's `generate_step`. The decoder hands out a
whole text at once: it runs in a thread, and its first token is handed out when it first drafts.
Acceptance is what its `stats` count.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from measuring import serve


class Yunshu:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        if k > 1:
            raise ValueError("yunshu drafts one token a round")
        self._k = k
        self._worker = ThreadPoolExecutor(1)
        self._decoder: Any = None
        if k:
            device = mx.default_device()
            self._decoder = self._worker.submit(_decoder, folder, device).result()
        else:
            from mlx_lm.utils import load_model

            self._model: Any = load_model(folder)[0]

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        if not self._k:
            from mlx_lm.generate import generate_step

            for token, _ in generate_step(mx.array(prompt), self._model, max_tokens=tokens):
                yield int(token)
            return
        first = self._decoder.first = SimpleQueue()
        running = self._worker.submit(self._decoder.generate, prompt, max_tokens=tokens)
        running.add_done_callback(first.put)
        if isinstance(token := first.get(), int):
            yield token
            yield from running.result()[1:]
        else:
            yield from running.result()

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it, the accepted ones first: it counts them in all."""
        if not self._k:
            return []
        counted = self._decoder.stats
        return [(1, 1)] * counted.accepts + [(1, 0)] * counted.rejects


def _decoder(folder: Path, device: mx.Device) -> Any:
    """The decoder, which says its first token when it drafts; made where it is to run."""
    from yunshu_engine.mtp_decoder import MTPDecoder
    from yunshu_engine.mtp_patch import load_model_with_mtp
    from yunshu_engine.n_confirmed_patch import apply_n_confirmed_patch

    class Decoder(MTPDecoder):
        first: Any = None

        def _mtp_draft(
            self,
            hidden: mx.array,
            primary: int,
            constraint: Any = None,
            generated_ids: list[int] | None = None,
        ) -> int:
            if generated_ids and len(generated_ids) == 1:
                self.first.put(primary)
            return super()._mtp_draft(hidden, primary, constraint, generated_ids)

    mx.set_default_device(device)
    apply_n_confirmed_patch()
    weights: Any = mx.load(str(folder / "model.safetensors"))
    # in the names and the norm convention that its loader expects of a head beside the model
    head = {k: v + 1 if v.ndim == 1 else v for k, v in weights.items() if k.startswith("mtp.")}
    with tempfile.TemporaryDirectory() as derived:
        for name in ("config.json", "model.safetensors"):
            (Path(derived) / name).symlink_to((folder / name).resolve())
        mx.save_safetensors(str(Path(derived) / "mtp-weights.safetensors"), head)
        model = load_model_with_mtp(derived)
        mx.eval(model.parameters())
    return Decoder(model, SimpleNamespace(eos_token_id=()))


if __name__ == "__main__":
    serve(("yunshu", "mlx-lm", "mlx"), Yunshu)
