"""What a round costs by strategy, K and mode, and what mlx-lm's own loop makes of the model.

Arms of one K are interleaved, round by round in turn; the first rounds of each warm it up and are
not kept. Drafts are injected so that every accepted count comes; the head runs along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step as mlx_lm_steps

from mtp_decoder import generate_step
from mtp_decoder.counters import PHASES
from mtp_decoder.session import Session
from tests.gpu.exact import PROMPT, accepts, drafts_for, plain, prompt, session
from tests.gpu.models import Subject
from tests.gpu.rows import Row

WARM_UP = 3
STRATEGIES = ("tape", "rerun", "snapshot", "replay")


class _Arm:
    """One way of decoding, a round at a time."""

    def __init__(
        self, pair: Any, stream: list[int], k: int, strategy: str, row_exact: bool
    ) -> None:
        self.strategy, self.row_exact, self.k = strategy, row_exact, k
        self._session: Session = session(pair, rewind=strategy, row_exact=row_exact)
        self._stream = list(stream)
        self._vocabulary: int = pair[0].vocab_size
        self._plan = accepts(k)
        self.rounds: list[dict[str, float]] = []
        self.tape_bytes = 0

    def round(self, *, keep: bool) -> None:
        """One round; its milliseconds by phase are kept or not."""
        made, counters = self._session, self._session.counters
        before, emitted = dict(counters.seconds), len(made.history) - PROMPT
        accepted = next(self._plan)
        drafts = drafts_for(self._stream, emitted, self.k, accepted, 1, self._vocabulary)
        start = time.perf_counter()
        done = made.round(drafts=drafts)
        wall = time.perf_counter() - start
        self._stream[emitted : emitted + len(done.tokens)] = done.tokens
        self.tape_bytes = max(self.tape_bytes, counters.rewind_bytes)
        if keep:
            spent = {p: 1e3 * (counters.seconds[p] - before[p]) for p in PHASES if p != "prefill"}
            self.rounds.append(
                {**_rounded(spent), "wall": round(1e3 * wall, 3), "accepted": done.accepted}
            )


def rounds(subject: Subject, pair: Any, k: int, count: int) -> Iterator[Row]:
    """Raw milliseconds of rounds with K drafts, of every strategy in both modes."""
    stream = plain(pair, (count + WARM_UP) * (k + 1) + k + 2)
    modes = [(strategy, exact) for strategy in STRATEGIES for exact in (False, True)]
    arms = [_Arm(pair, stream, k, *mode) for mode in (modes if k else modes[:2])]
    if k:  # one step, as fast or slow as the device is while these rounds run
        arms.append(_Arm(pair, stream, 0, *modes[0]))
    for number in range(count + WARM_UP):
        for arm in arms if number % 2 else reversed(arms):
            arm.round(keep=number >= WARM_UP)
    for arm in arms:
        yield {
            "part": "rounds",
            "model": subject.name,
            "bits": subject.quantised,
            "k": arm.k,
            "beside": k,
            "strategy": arm.strategy,
            "row_exact": arm.row_exact,
            "remembered_bytes": arm.tape_bytes,
            "ms": arm.rounds,
        }


def loops(subject: Subject, pair: Any, tokens: int, times: int = 4) -> Iterator[Row]:
    """Tokens at K=0: rounds, steps that run ahead, and mlx-lm's loop, in turn."""
    target, _ = pair
    given = prompt(target.vocab_size)
    ways: dict[str, Callable[[Any, list[int], int], float]] = {
        "mtp_decoder": _rounds,
        "mtp_decoder, ahead": _ahead,
        "mlx-lm": _theirs,
    }
    for number in range(times):
        for name in ways if number % 2 else reversed(ways):
            yield {
                "part": "loops",
                "model": subject.name,
                "bits": subject.quantised,
                "loop": name,
                "run": number,
                "tokens": tokens,
                "seconds": round(ways[name](target, given, tokens), 6),
            }


def _rounds(target: Any, given: list[int], tokens: int) -> float:
    made = Session(target)
    made.prefill(given)
    start = time.perf_counter()
    for _ in range(tokens):
        made.round(drafts=())
    return time.perf_counter() - start


def _ahead(target: Any, given: list[int], tokens: int) -> float:
    steps = generate_step(given, target, num_draft_tokens=0, max_tokens=tokens + 1)
    return _seconds(steps, tokens)


def _seconds(steps: Iterator[Any], tokens: int) -> float:
    next(steps)
    start = time.perf_counter()
    for _ in range(tokens):
        next(steps)
    return time.perf_counter() - start


def _theirs(target: Any, given: list[int], tokens: int) -> float:
    return _seconds(mlx_lm_steps(mx.array(given), target.model, max_tokens=tokens + 1), tokens)


def _rounded(milliseconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in milliseconds.items()}
