"""One turn of one arm: load the model, warm up, decode every prompt, print what was measured.

    python -m mtp_decoder.bench.worker < SPEC

The specification is `plan.spec_of`'s, one JSON object. One line a run is printed, with the measured
fields of `rows.Run`. Runtimes in other environments (`peers/`) do the same.

Every arm is timed by the same clock: from the moment the first token is handed out to the moment
the last one is. Arms that take turns in this process are timed slice by slice; a slice's clock
stops when all work that it began is done.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx

from mtp_decoder.bench.plan import MLX_LM, OURS
from mtp_decoder.errors import DecoderError
from mtp_decoder.experts import OffloadSettings, Shards, offload, stores_of
from mtp_decoder.generate import emit
from mtp_decoder.loading import load_with
from mtp_decoder.qwen.load import load
from mtp_decoder.session import Round, Session
from mtp_decoder.target import Head, Target


@dataclass(frozen=True)
class Timed:
    """Tokens as they came, and seconds from the first to the last."""

    tokens: list[int]
    seconds: float


@dataclass
class Measured:
    """The measured fields of `rows.Run`; see there."""

    prompt_tokens: int
    tokens: int
    decode_seconds: float
    tokens_digest: str
    bytes: dict[str, int]
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    rounds: int = 0
    rewinds: int = 0
    drafted_by_depth: list[int] = field(default_factory=list[int])
    accepted_by_depth: list[int] = field(default_factory=list[int])
    experts_read: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Started:
    """A decoding: its tokens as they come, and what can be said when all of them have."""

    tokens: Iterator[int]
    finish: Callable[[Timed], Measured]


class Decoder(Protocol):
    """A runtime with a model loaded."""

    def start(self, prompt: Sequence[int], tokens: int) -> Started:
        """Begin to decode so many tokens after a prompt; nothing is computed yet."""
        ...

    def wait(self) -> None:
        """Wait for everything it has submitted."""
        ...


def timed(tokens: Iterator[int]) -> Timed:
    """Take all tokens of an iterator."""
    found = [next(tokens)]
    start = time.perf_counter()
    found += tokens
    return Timed(found, time.perf_counter() - start)


def alone(arm: Decoder, prompt: Sequence[int], tokens: int) -> Measured:
    """Decode so many tokens after a prompt, with the process to itself."""
    mx.reset_peak_memory()
    started = arm.start(prompt, tokens)
    found = started.finish(timed(started.tokens))
    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    found.bytes |= {"peak": mx.get_peak_memory(), "resident": resident}
    return found


def in_turns(
    arms: Sequence[Decoder], prompt: Sequence[int], tokens: int, slice_tokens: int
) -> list[Measured]:
    """Decode with several arms at once, a slice each, forwards and backwards.

    A slice begins when nothing is under way, and its clock stops when all that it submitted is
    done, a step ahead too: that step is then there when the arm's next slice begins.
    """
    started = [arm.start(prompt, tokens) for arm in arms]
    found = [[next(one.tokens)] for one in started]
    seconds = [0.0 for _ in arms]
    for arm in arms:
        arm.wait()
    order = list(range(len(arms)))
    while any(len(emitted) < tokens for emitted in found):
        for i in order:
            start = time.perf_counter()
            found[i] += islice(started[i].tokens, slice_tokens)
            arms[i].wait()
            seconds[i] += time.perf_counter() - start
        order.reverse()
    return [
        # No token is left, but a generator ends only when it is asked for one.
        one.finish(Timed([*emitted, *one.tokens], spent))
        for one, emitted, spent in zip(started, found, seconds, strict=True)
    ]


def digest_of(tokens: Sequence[int]) -> str:
    """A short digest of token ids."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()[:16]


def measured(prompt: Sequence[int], decoded: Timed, remembered: int = 0) -> Measured:
    """What can be measured of any runtime."""
    sizes, tokens = {"remembered": remembered}, decoded.tokens
    return Measured(len(prompt), len(tokens), decoded.seconds, digest_of(tokens), sizes)


class Ours:
    """This decoder."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._k, self._strategy = spec["k"], spec["strategy"]
        budget = spec["expert_budget"]
        experts = None if budget is None else OffloadSettings(budget)
        self._target, self._head = _opened(Path(spec["folder"]), spec["loader"], experts)
        self._stores = stores_of(self._target.layers)
        if self._head is not None:
            self._stores += stores_of(self._head.layers)

    def start(self, prompt: Sequence[int], tokens: int) -> Started:
        """As `Decoder` has it, in a session of its own."""
        session = Session(self._target, self._head if self._k else None, rewind=self._strategy)
        remembered, before = 0, self._experts()

        def watch(_: Round) -> None:
            nonlocal remembered
            remembered = max(remembered, session.counters.rewind_bytes)

        def finish(decoded: Timed) -> Measured:
            found, counted = measured(prompt, decoded, remembered), session.counters
            found.seconds, found.rewinds = counted.seconds, counted.rewinds
            found.rounds = counted.rounds
            found.drafted_by_depth = counted.drafted_by_depth
            found.accepted_by_depth = counted.accepted_by_depth
            now = self._experts()
            found.experts_read = {name: n - before.get(name, 0) for name, n in now.items()}
            if self._stores:
                found.experts_read["slots"] = sum(store.slots for store in self._stores)
                found.experts_read["expert_bytes"] = self._stores[0].expert_bytes
            return found

        emitted = emit(
            session,
            prompt,
            num_draft_tokens=self._k,
            max_tokens=tokens,
            on_round=watch if self._k else None,  # without drafts nothing is remembered
        )
        return Started((token for token, _, _ in emitted), finish)

    def wait(self) -> None:
        """As `Decoder` has it."""
        mx.synchronize()

    def _experts(self) -> dict[str, int]:
        """Totals over target and head."""
        found: dict[str, int] = {}
        for store in self._stores:
            for name, count in asdict(store.counts).items():
                found[name] = found.get(name, 0) + count
        return found


class MlxLm:
    """mlx-lm's own loop, without drafts."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from mlx_lm.utils import load_model

        if spec["k"] or spec["loader"] or spec["expert_budget"] is not None:
            raise DecoderError("mlx-lm decodes its own classes, with K=0 and experts in memory")
        self._model, _ = load_model(Path(spec["folder"]))

    def start(self, prompt: Sequence[int], tokens: int) -> Started:
        """As `Decoder` has it."""
        from mlx_lm.generate import generate_step

        emitted = generate_step(mx.array(list(prompt)), self._model, max_tokens=tokens)
        return Started(
            (int(token) for token, _ in emitted), lambda decoded: measured(prompt, decoded)
        )

    def wait(self) -> None:
        """As `Decoder` has it: `generate_step` computes on a stream of its own."""
        from mlx_lm.generate import generation_stream

        mx.synchronize(generation_stream)


def _opened(
    folder: Path, loader: str | None, experts: OffloadSettings | None
) -> tuple[Target, Head | None]:
    if loader is None:
        loaded = load(folder, experts)
        return loaded.target, loaded.head
    shards = None if experts is None else Shards(folder)
    target, head = load_with(loader, folder)
    if shards is not None and experts is not None:
        offload(target, head, shards, experts)
    return target, head


def run(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of every prompt, as often as it is to be decoded, arm by arm."""
    if spec["device"] is not None:
        mx.set_default_device(mx.Device(getattr(mx, spec["device"])))
    runtimes: dict[str, Callable[[dict[str, Any]], Decoder]] = {OURS: Ours, MLX_LM: MlxLm}
    arms = [runtimes[one["runtime"]]({**spec, **one}) for one in (spec, *spec["beside"])]
    for name, prompt in spec["prompts"].items():
        if spec["warm_up"]:
            for arm in arms:
                alone(arm, prompt, spec["warm_up"])
        for repeat in range(spec["repeats"]):
            if len(arms) == 1:
                rows = [alone(arms[0], prompt, spec["tokens"])]
            else:
                rows = in_turns(arms, prompt, spec["tokens"], spec["slice_tokens"])
            for found in rows:
                yield {"workload": name, "repeat": repeat, **asdict(found)}


def main() -> int:
    """Read a specification, print rows; returns the exit code."""
    try:
        for row in run(json.load(sys.stdin)):
            print(json.dumps(row), flush=True)
    except DecoderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
