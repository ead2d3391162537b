"""What adapters of other runtimes share: sessions over a runtime's own token generator.

Most runtimes decode with a generator that is told K once and asks its drafter for a block
whenever it starts a round. An adapter gives `start`, which starts that generator, and wraps
the drafter so that it asks the `Injection` first. This module makes rounds of it: a round is
what the generator emits from one block of drafts to the next.

Needs the standard library and mlx alone: it runs in the runtime's own environment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from mtp_conformance.protocol import Generated, Outcome

_ROUNDS_BUDGET = 4096
"""Tokens a generator driven round by round is allowed, more than any case asks for."""

_SURPLUS = 64
"""Tokens past its budget after which a generator is taken for one that does not end."""

Emitted = tuple[int, bool]
"""A token and whether it was a draft that stands."""

Start = Callable[[Sequence[int], int, int, "Injection", "Ends"], Iterator[Emitted]]
"""From (prompt, K, max_tokens, injection, ends) to all the tokens that the runtime emits.

The budget and the ends are handed to the runtime; whatever it emits is given out, past them too.
With K=0 it is the runtime's plain decoding.
"""


@dataclass(frozen=True)
class Ends:
    """What ends a stream before its budget does.

    Attributes:
        eos_token_ids: end-of-text ids.
        stop_sequences: of one token or more.
    """

    eos_token_ids: tuple[int, ...] = ()
    stop_sequences: tuple[tuple[int, ...], ...] = ()

    def refuse(self, *, eos: bool = True, stops: bool = True) -> None:
        """Refuse what a runtime's generator does not take.

        Args:
            eos: it takes no end-of-text ids.
            stops: it takes no stop sequences.

        Raises:
            ValueError: `unsupported:` if there is one of them.
        """
        if eos and self.eos_token_ids:
            raise ValueError("unsupported: its generator takes no end-of-text ids")
        if stops and self.stop_sequences:
            raise ValueError("unsupported: its generator takes no stop sequences")


class Injection:
    """What a wrapped drafter is to say, and the count of what it said.

    Attributes:
        drafted: draft tokens handed to the runtime so far, its own ones included.
    """

    def __init__(self, guess: Sequence[int] | None = None) -> None:
        self.drafted = 0
        self._guess = guess
        self._block: list[int] | None = None

    def say_next(self, drafts: Sequence[int]) -> None:
        """The next block the drafter is asked for is this one."""
        self._block = list(drafts)

    def block(self, index: int, k: int) -> list[int] | None:
        """The drafts for the emitted tokens `index`, `index`+1, ...; None: draft natively.

        Args:
            index: of the first token to be drafted among the emitted ones, from 0; the
                target's attention caches hold prompt + index - 1 tokens by then.
            k: how many are asked for. At the end of a guess a block is filled up with token 0,
                for drafters that have to give all k.
        """
        if self._block is not None:
            given, self._block = self._block, None
        elif self._guess is not None:
            given = list(self._guess[index : index + k])
        else:
            return None
        return (given + [0] * k)[:k]

    def note(self, count: int) -> None:
        """Count drafts that go into a verify pass."""
        self.drafted += count


class GeneratorSession:
    """A session over a generator.

    `prefill` decodes plainly; the first `round` starts the generator with its number of drafts,
    which later rounds have to keep, as these generators do.

    Args:
        start: starts the runtime's generator. An adapter whose runtime shows its caches
            subclasses and adds `state`.
        takes_eos: the generator takes end-of-text ids; without, they are refused.
        takes_stops: the generator takes stop sequences; without, they are refused.
    """

    def __init__(self, start: Start, *, takes_eos: bool = False, takes_stops: bool = False) -> None:
        self._start = start
        self._refused = {"eos": not takes_eos, "stops": not takes_stops}
        self._prompt: list[int] = []
        self._running: Iterator[Emitted] | None = None
        self._injection = Injection()
        self._k: int | None = None

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt and emit the first token."""
        self._prompt = list(tokens)
        self._run(0)
        return Outcome(0, (self._first,))

    def _run(self, k: int) -> None:
        self.close()
        self._injection, self._k = Injection(), k
        self._running = self._start(self._prompt, k, _ROUNDS_BUDGET, self._injection, Ends())
        self._first, _ = next(self._running)
        self._rounds = 0

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Let the runtime verify these drafts in a round of its own.

        Raises:
            ValueError: `unsupported:` where K changes between rounds.
            RuntimeError: the generator ended, or did not ask for the drafts.
        """
        if self._k != len(drafts):
            if self._rounds:
                raise ValueError(
                    "unsupported: this runtime's generator keeps the K it started with"
                )
            self._run(len(drafts))
        assert self._running is not None
        self._rounds += 1
        before = self._injection.drafted
        self._injection.say_next(drafts)
        emitted: list[int] = []
        for token, stands in self._running:
            emitted.append(token)
            if not stands:
                break
        else:
            raise RuntimeError("the runtime's generator ended within a round")
        if self._injection.drafted - before != len(drafts):
            used = self._injection.drafted - before
            raise RuntimeError(f"of {len(drafts)} drafts given the runtime verified {used}")
        return Outcome(len(emitted) - 1, tuple(emitted))

    def generate(
        self,
        tokens: Sequence[int],
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
    ) -> Generated:
        """Decode until the runtime itself ends; nothing it emits is cut off.

        Raises:
            ValueError: `unsupported:` for ends that the generator does not take.
        """
        ends = Ends(tuple(eos_token_ids), tuple(tuple(stop) for stop in stop_sequences))
        ends.refuse(**self._refused)
        self.close()
        self._injection = Injection(guess)
        self._running = self._start(
            list(tokens), num_draft_tokens, max_tokens, self._injection, ends
        )
        emitted: list[int] = []
        accepted = 0
        for token, stands in self._running:
            emitted.append(token)
            accepted += stands
            if len(emitted) >= max_tokens + _SURPLUS:
                break
        return Generated(tuple(emitted), max(self._injection.drafted, accepted), accepted)

    def close(self) -> None:
        """End the generator."""
        close = getattr(self._running, "close", None)
        self._running = None
        if close is not None:
            close()


Session = TypeVar("Session")


def over_after_failure(session: type[Session]) -> type[Session]:
    """Have a session's calls raise once its `round` or `generate` did.

    A class decorator, for generators that an exception ends: nothing is promised of the caches
    they leave, and whoever decodes with them drops these. A prefill that failed is no such end,
    where it is made on new caches; neither is `unsupported:`.
    """
    calls: Any = session
    for name in ("prefill", "round", "generate", "state"):
        setattr(session, name, _refusing(getattr(calls, name), ends=name in ("round", "generate")))
    return session


def _refusing(call: Callable[..., Any], *, ends: bool) -> Callable[..., Any]:
    @functools.wraps(call)
    def refusing(session: Any, *args: Any, **named: Any) -> Any:
        failed = getattr(session, "failed", None)
        if failed is not None:
            raise RuntimeError(f"an error ended this session: {failed}")
        try:
            return call(session, *args, **named)
        except Exception as error:
            if ends and not str(error).startswith("unsupported:"):
                session.failed = error
            raise

    return refusing


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of installed packages, for a description."""
    found: dict[str, str] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
