"""mtplx's own MTP loop, or its plain one at K=0, as an arm of a benchmark.

    python mtplx.py < SPEC          (in an environment with mtplx)

`generate_mtpk` and `generate_ar` as its server calls them: a thread of its own loads and decodes,
and the tokens come through `token_callback`. Its copying from the context is turned off, as it
would draft in the head's place. Acceptance is what its statistics say of every round (`events`).
"""
# Its packages live in the runtime's own environment alone, and the checker takes this file for the
# one of the same name.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mlx.core as mx
from measuring import serve


class Mtplx:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        os.environ["MTPLX_CONTEXT_COPY"] = "0"
        self._k = k
        self._asked: SimpleQueue[tuple[list[int], int]] = SimpleQueue()
        self._handed: SimpleQueue[Any] = SimpleQueue()
        self._events: list[dict[str, Any]] = []
        Thread(target=self._work, args=(folder, mx.default_device()), daemon=True).start()

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        self._asked.put((prompt, tokens))
        count = 0
        while isinstance(handed := self._handed.get(), list):
            count += len(handed)
            yield from handed
        if isinstance(handed, Exception):
            raise handed
        yield from handed.tokens[count:]  # what the callback was not given
        self._events = handed.stats.events

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        rounds = [event for event in self._events if "accepted_depths" in event]
        return [(len(event["drafts"]), int(event["accepted_depths"])) for event in rounds]

    def _work(self, folder: Path, device: mx.Device) -> None:
        """Load, then decode what is asked for: hand out lists of tokens, at last the output."""
        try:
            mx.set_default_device(device)
            with patch("ctypes.CDLL", _open_library(ctypes.CDLL)):
                from mtplx import generation
                from mtplx.runtime import load
                from mtplx.sampling import SamplerConfig

            runtime = load(folder)
            settings: dict[str, Any] = {
                "sampler": SamplerConfig(temperature=0.0),
                "stop_token_ids": set(),
                "token_callback": lambda tokens: self._handed.put(list(tokens)),
            }
            generate = generation.generate_ar
            if self._k:
                generate = generation.generate_mtpk
                settings |= {"speculative_depth": self._k, "mtp_history_policy": "committed"}
                settings |= {"verify_strategy": "capture_commit", "verify_core": _verify_core()}
                settings |= {"mtp_hidden_variant": "post_norm"}
            while True:
                prompt, tokens = self._asked.get()
                self._handed.put(generate(runtime, prompt, max_tokens=tokens, **settings))
        except Exception as error:  # raised again where tokens are taken
            self._handed.put(error)


def _verify_core() -> str:
    """Its server's, which is a Metal kernel, or what its loop has by default.

    Without the kernel the server's falls back to a pass whose rejected drafts stay in the caches.
    """
    metal = mx.metal.is_available() and mx.default_device() == mx.Device(mx.gpu)
    return "linear-gdn-from-conv-tape" if metal else "stock"


def _open_library(opened: Any) -> Any:
    """`ctypes.CDLL`, with a clock where mtplx asks libSystem for it at import and there is none."""

    def timebase(ref: Any) -> None:
        ref._obj.numer = ref._obj.denom = 1

    def now() -> int:
        return time.monotonic_ns()

    clock = SimpleNamespace(mach_timebase_info=timebase, mach_continuous_time=now)

    def open_library(name: Any, *args: Any, **options: Any) -> Any:
        if str(name).startswith("/usr/lib/libSystem") and os.uname().sysname != "Darwin":
            return clock
        return opened(name, *args, **options)

    return open_library


if __name__ == "__main__":
    serve(("mtplx", "mlx", "mlx-lm"), Mtplx)
