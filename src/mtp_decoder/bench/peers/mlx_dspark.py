"""mlx-dspark's n-gram lookup loop, or its plain one at K=0, as an arm of a benchmark.

    python mlx_dspark.py < SPEC          (in an environment with mlx-dspark)

It drives no MTP head. Without a drafter checkpoint it has `lookup_generate`, here with K drafts
at most, and `greedy_generate`; both are called on a thread of their own, as its server does, and
hand tokens to a detokenizer after every round. Acceptance is what it reports of every round
(`on_round`): one without a match is a plain step, which has no drafts.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import mlx.core as mx
from measuring import serve


class _Tokenizer:
    """A tokenizer and detokenizer which hands tokens on: nothing ends a sequence."""

    text = ""

    def __init__(self) -> None:
        self.tokens: SimpleQueue[int | None] = SimpleQueue()
        self.detokenizer, self.add_token = self, self.tokens.put

    def finalize(self) -> None:
        """Nothing is held back."""

    def decode(self, tokens: Sequence[int]) -> str:
        """No text."""
        del tokens
        return ""


class MlxDspark:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        self._k = k
        self._rounds: list[tuple[int, int]] = []
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        # A daemon, for the process aborts where a thread with MLX's streams ends before it.
        Thread(target=self._work, args=(mx.default_device(),), daemon=True).start()
        self._target = self._on_thread(partial(self._load, folder)).result()

    def _work(self, device: mx.Device) -> None:
        mx.set_default_device(device)
        while True:
            job, done = self._jobs.get()
            try:
                done.set_result(job())
            except Exception as error:
                done.set_exception(error)

    def _on_thread(self, job: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._jobs.put((job, done))
        return done

    @staticmethod
    def _load(folder: Path) -> Any:
        from mlx_dspark.load import load_target

        return load_target(str(folder))[0]

    def _run(self, prompt: list[int], tokens: int, tokenizer: _Tokenizer) -> None:
        from mlx_dspark.generate import greedy_generate
        from mlx_dspark.lookup import lookup_generate

        run = lookup_generate if self._k else greedy_generate
        settings: dict[str, Any] = {"prompt_ids": prompt, "max_new_tokens": tokens}
        if self._k:
            settings |= {"max_draft_tokens": self._k, "long_draft_tokens": self._k}
            settings |= {"on_round": self._note}
        try:
            run(self._target, tokenizer, on_text=lambda _: None, **settings)
        finally:
            tokenizer.tokens.put(None)

    def _note(self, *, drafted: int, accepted: int, **_: Any) -> None:
        self._rounds.append((drafted, accepted))

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        self._rounds = []
        tokenizer = _Tokenizer()
        running = self._on_thread(partial(self._run, prompt, tokens, tokenizer))
        # A last round may end one token past the budget.
        yield from islice(iter(tokenizer.tokens.get, None), tokens)
        running.result()

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return self._rounds


if __name__ == "__main__":
    serve(("mlx-dspark", "mlx-lm", "mlx"), MlxDspark)
