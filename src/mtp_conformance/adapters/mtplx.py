"""mtplx behind the protocol: its own loops `mtplx.generation.generate_mtpk` and `generate_ar`.

A loop runs in a thread that stands still whenever a round is to start, so that rounds can be
handed in one by one and the caches looked at. Each session has a shallow copy of the runtime
that `mtplx.runtime.load` made. Its `draft_mtp` says injected drafts as one-hot logits, the head
running in any case; its `make_cache` and forward passes are watched, as is its bank of compiled
passes, by a subclass that only looks at results.
"""
# Its packages live in the runtime's own environment alone, and the checker takes this file for the
# one of the same name.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import copy
import ctypes
import functools
import json
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx

from mtp_conformance.adapters.caches import components, index_arrays
from mtp_conformance.adapters.generating import (
    Emitted,
    Ends,
    GeneratorSession,
    Injection,
    versions_of,
)
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from mtp_conformance.stdio import serve

_CDLL = ctypes.CDLL


def _open_library(name: Any, *args: Any, **options: Any) -> Any:
    """`ctypes.CDLL`, with a clock where `mtplx.route_tape` asks libSystem for it at import."""
    if not str(name).startswith("/usr/lib/libSystem") or os.uname().sysname == "Darwin":
        return _CDLL(name, *args, **options)

    def timebase(ref: Any) -> None:
        ref._obj.numer = ref._obj.denom = 1

    def now() -> int:
        return time.monotonic_ns()

    return SimpleNamespace(mach_timebase_info=timebase, mach_continuous_time=now)


ctypes.CDLL = _open_library  # type: ignore[assignment, misc] -- for this import alone
from mtplx import generation  # noqa: E402  (after the clock above)
from mtplx.runtime import load  # noqa: E402  (as above)
from mtplx.sampling import SamplerConfig  # noqa: E402  (as above)

ctypes.CDLL = _CDLL  # type: ignore[misc]

_STRATEGIES = (
    "capture_commit",
    "batched",
    "batched+family",
    "trim_commit",
    "target_prefix",
    "graphbank",
    "graphbank_capture_commit",
)
_NOTES = {
    "loading": "mtplx's own loader; of qwen4_exp a folder is derived that has the head in "
    "mtp.safetensors and no stacked experts, whose axes it cannot tell apart where they are equal",
    "drafting": "mtp_history_policy=committed, no policy that changes the depth",
    "strategies": "its verify_strategy; +family with MTPLX_FAMILY_CAPTURE_COMMIT=1 (qwen4_exp); "
    "on hybrids its trim_commit falls back to what batched does; MTPLX_COMPILED_VERIFY, which "
    "turns itself off for these shapes, is left out",
    "default": "capture_commit, as its server's; batched for qwen4_exp, as its server's, and for "
    "qwen3_next, on which its server's raises",
    "k-changes": "its loop keeps the depth it was called with",
    "head-state": "not offered: its plain loop has no head cache",
    "import": "off macOS a clock stands in for libSystem's while mtplx is imported",
}


class MtplxRuntime:
    """Opens what `mtplx.runtime.load` opens."""

    def describe(self) -> Description:
        """The card."""
        offered = "stream", "guess", "drafts", "logits", "state"
        return Description(
            name="mtplx",
            versions=versions_of("mtplx", "mlx", "mlx-lm"),
            capabilities=frozenset(Capability(name) for name in offered),
            models=("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe", "gdn-next", "flash-next"),
            strategies=_STRATEGIES,
            head_rows=("target",),
            max_draft_tokens=8,
            after_stop="block",
            notes=_NOTES,
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> MtplxSession:
        """A new session on the checkpoint, which is loaded once."""
        of_qwen4 = model == "flash-next"
        works = "batched" if model in ("gdn-next", "flash-next") else _STRATEGIES[0]
        strategy = options.strategy or works
        if model not in self.describe().models:
            raise ValueError(f"unsupported: mtplx's patched forward has no place for {model}")
        if checkpoint.name.endswith("bfloat16") and model in ("gdn-moe", "gdn-next", "flash-next"):
            raise ValueError("unsupported: mlx has gather_mm for float32 alone on the CPU")
        of_qwen3 = any(word in strategy for word in ("capture", "graphbank", "prefix"))
        if (of_qwen4 and of_qwen3) or ("family" in strategy and not of_qwen4):
            raise ValueError(f"unsupported: mtplx does not serve {model} with {strategy}")
        return MtplxSession(_load(checkpoint), strategy)


@functools.cache
def _load(checkpoint: Path) -> Any:
    kind = json.loads((checkpoint / "config.json").read_text())["model_type"]
    with tempfile.TemporaryDirectory() as folder:
        rt = load(_packed(checkpoint, Path(folder)) if kind == "qwen4_exp" else checkpoint)
        # In this thread, so that no array made lazily is left to the threads of the sessions.
        _decode(rt, list(range(20)), 1, 8, "batched", None)
        return rt


def _packed(checkpoint: Path, folder: Path) -> Path:
    """A qwen4_exp folder as mtplx wants it: experts one by one, the head apart and converted."""
    for file in checkpoint.glob("*.json"):
        shutil.copy(file, folder)
    trunk: dict[str, mx.array] = {}
    head: dict[str, mx.array] = {}
    weights: Any = mx.load(str(checkpoint / "model.safetensors"))
    for name, array in weights.items():
        owner, _, part = name.partition(".mlp.experts.")
        in_head = name.startswith("mtp.")
        if not part:
            raised = in_head and array.ndim == 1 and "pre_fc_norm" not in name
            (head if in_head else trunk)[name] = array + 1 if raised else array
            continue
        halves = mx.split(array, 2, axis=1) if part == "gate_up_proj" else [array]
        labels = ("gate_proj", "up_proj") if len(halves) == 2 else ("down_proj",)
        for label, stacked in zip(labels, halves, strict=True):
            if in_head:
                head[f"{owner}.mlp.switch_mlp.{label}.weight"] = stacked
            for index, expert in enumerate(() if in_head else stacked):
                trunk[f"{owner}.mlp.experts.{index}.{label}.weight"] = expert
    mx.save_safetensors(str(folder / "model.safetensors"), trunk, {"format": "pt"})
    mx.save_safetensors(str(folder / "mtp.safetensors"), head)
    return folder


def _components(cache: Any) -> dict[str, mx.array]:
    """The live arrays of one cache; those of qwen4_exp have more than mlx-lm's."""
    if not hasattr(cache, "raw_keys"):
        return components(cache)
    n, ratio, found = int(cache.offset), cache.ratio, components(cache.kv)
    if cache.raw_keys is not None:
        found |= index_arrays(cache.raw_keys[:, :n], ratio)
    if cache.pooled is not None:
        found["pooled"] = cache.pooled[:, : n // ratio]
    return {name: array for name, array in found.items() if 0 not in array.shape}


def _decode(
    rt: Any,
    prompt: list[int],
    k: int,
    max_tokens: int,
    strategy: str,
    take: Any,
    switch: str = "",
    ends: Sequence[int] = (),
) -> list[int]:
    """One call of a loop of mtplx; its tokens, of which its callback leaves out the ends."""
    os.environ["MTPLX_FAMILY_CAPTURE_COMMIT"] = "1" if switch == "family" else "0"
    greedy = SamplerConfig(temperature=0.0)
    common = {"max_tokens": max_tokens, "sampler": greedy, "stop_token_ids": set(ends)}
    if k == 0:
        return generation.generate_ar(rt, prompt, token_callback=take, **common).tokens
    made = generation.generate_mtpk(
        rt,
        prompt,
        token_callback=take,
        speculative_depth=k,
        verify_strategy=strategy,
        mtp_history_policy="committed",
        **common,
    )
    return made.tokens


def _shown(bank: Any) -> Any:
    """The dispatcher of compiled passes, with its results shown to the session."""

    class Shown(bank):  # type: ignore[misc]
        def __init__(self, runtime: Any, **options: Any) -> None:
            super().__init__(runtime, **options)
            for name in ("forward_ar", "forward_ar_capture"):
                if hasattr(self, name):
                    setattr(self, name, runtime.watched(getattr(self, name)))

    return Shown


generation.SpecDecodeGraphBank = _shown(generation.SpecDecodeGraphBank)


class _Ended(BaseException):
    """Ends the thread of a loop whose tokens nobody wants any more."""


class _Stand:
    """Where a loop in a thread of its own waits for its next round to be wanted."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.ended = self.unwanted = False
        self._failure: BaseException | None = None
        self._turn, self._handed = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], object]) -> None:
        self._turn.acquire()
        try:
            if not self.unwanted:
                call()
        except _Ended:
            pass
        except BaseException as error:  # raised again where tokens are taken
            self._failure = error
        self.ended = True
        self._handed.release()

    def go_on(self) -> None:
        """Let the loop run to its next stand or to its end."""
        self._turn.release()
        self._handed.acquire()
        if self._failure is not None:
            raise self._failure

    def wait(self) -> None:
        """In the loop's thread: stand still."""
        self._handed.release()
        self._turn.acquire()
        if self.unwanted:
            raise _Ended


class _Watched:
    """A call of mtplx's loops: its runtime with drafts injected, its caches and logits seen."""

    def __init__(self, loaded: Any, k: int, injection: Injection) -> None:
        self._loaded, self._k, self._injection = loaded, k, injection
        self.caches: list[Any] = []
        self.logits: mx.array | None = None
        self.emitted: deque[int] = deque()
        self.said: list[mx.array] = []
        self.stand: Any = None
        self._count = 0
        self._block: list[int] | None = None
        self._depth = 0  # below a bank's pass what is seen may be the tracing of a compilation
        self.runtime = rt = copy.copy(loaded)
        rt.draft_mtp, rt.make_cache, rt.watched = self.draft_mtp, self.make_cache, self.watched
        rt.forward_ar = self.watched(loaded.forward_ar)
        rt.forward_ar_capture = self.watched(loaded.forward_ar_capture)

    def settle(self) -> None:
        """Evaluate, in the loop's thread, what was computed on its stream."""
        mx.eval(self.said, self.logits, [_components(cache) for cache in self.caches])

    def take(self, tokens: Sequence[int]) -> None:
        """The loop's callback for tokens it emitted."""
        self.emitted.extend(tokens)
        self._count += len(tokens)
        if self._k == 0:
            self.settle()
            self.stand.wait()

    def close(self, tokens: Sequence[int]) -> None:
        """Take what the callback was not given of the tokens that the loop returned."""
        self.emitted.extend(tokens[self._count :])

    def draft_mtp(self, hidden: Any, tokens: Any, **options: Any) -> Any:
        """A pass of the head; the first one of a round waits for that round's drafts."""
        depth = options["mtp_depth"]
        if depth == 1:
            self.settle()
            self.stand.wait()
            self.said.clear()
            self._block = self._injection.block(self._count, self._k)
        logits, after = self._loaded.draft_mtp(hidden, tokens, **options)
        if self._block is not None:
            said = mx.arange(logits.shape[-1]) == self._block[depth - 1]
            logits = mx.broadcast_to(said, logits.shape).astype(mx.float32)
        self.said.append(logits[0, -1].argmax())
        self._injection.note(1)
        return logits, after

    def make_cache(self) -> Any:
        """The caches of this call."""
        self.caches = self._loaded.make_cache()
        return self.caches

    def watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A forward pass whose logits are kept if it is a verify pass or a plain step."""

        def run(*args: Any, **options: Any) -> Any:
            self._depth += 1
            result = forward(*args, **options)
            self._depth -= 1
            logits = result[0] if isinstance(result, tuple) else result
            rows = 0 if self._depth or logits is None else logits.shape[1]
            if rows == self._k + 1 or (rows and self._k == 0):
                self.logits = logits
            return result

        return run


class MtplxSession(GeneratorSession):
    """A session over mtplx's loops."""

    def __init__(self, loaded: Any, strategy: str) -> None:
        super().__init__(self._tokens, takes_eos=True)
        self._loaded = loaded
        self._strategy, _, self._switch = strategy.partition("+")
        self._watched: Any = None

    def _tokens(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        self._watched = watched = _Watched(self._loaded, k, injection)

        def call() -> None:
            how = self._strategy, watched.take, self._switch, ends.eos_token_ids
            made = _decode(watched.runtime, list(prompt), k, max_tokens, *how)
            watched.close(made)
            watched.settle()

        stand = watched.stand = _Stand(call)
        try:
            while not stand.ended:
                stand.go_on()
                standing, drafts = True, iter([cast("int", token.item()) for token in watched.said])
                while watched.emitted:
                    token = watched.emitted.popleft()
                    standing = standing and token == next(drafts, None)
                    yield token, standing
        finally:
            stand.unwanted = True
            if not stand.ended:
                stand.go_on()

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        return self._with_logits(super().prefill(tokens), 1)

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol."""
        return self._with_logits(super().round(drafts), len(drafts) + 1)

    def _with_logits(self, outcome: Outcome, rows: int) -> Outcome:
        return replace(outcome, logits=self._watched.logits[0, -rows:].astype(mx.float32))

    def state(self) -> dict[str, mx.array]:
        """See the protocol."""
        return {
            f"layers.{index}.{name}": mx.array(array)
            for index, cache in enumerate(self._watched.caches)
            for name, array in _components(cache).items()
        }


def make_runtime() -> MtplxRuntime:
    """The factory the command line names."""
    return MtplxRuntime()


if __name__ == "__main__":
    serve(make_runtime())
