"""Logits processors and the token mask, and their states in step with the committed tokens.

A logits processor is what it is in mlx-lm: (tokens so far, logits [1, V]) to logits. One that
keeps a state besides, and a token mask for structured output, also follow the emitted tokens:
they are told each one (`advance`), and told to forget the last few (`rewind`) when a round is
cancelled, fails or is cut. After every round they are where the emitted tokens put them. A
processor that changes in its calls, and offers no `rewind`, is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import mlx.core as mx

from mtp_decoder.errors import DecoderError, described

LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


@runtime_checkable
class Following(Protocol):
    """A state that follows the emitted tokens; it starts after the prompt."""

    def advance(self, token: int, /) -> None:
        """One more token was emitted."""
        ...

    def rewind(self, count: int, /) -> None:
        """The last `count` tokens were not emitted after all."""
        ...

    def fork(self) -> Any:
        """An independent copy at the same place, for a fork of the session."""
        ...


@runtime_checkable
class TokenMask(Following, Protocol):
    """Which tokens may come next: a grammar's matcher, say."""

    def allowed(self) -> mx.array:
        """The tokens that may come next, bool [V]; at least one."""
        ...


class _Follower:
    """Something that follows, and the tokens it has been told."""

    def __init__(self, what: Following, told: Sequence[int] = ()) -> None:
        self.what = what
        self._told = list(told)

    def move_to(self, tokens: Sequence[int]) -> None:
        """Put it after these tokens: forget what is not of them, tell the rest."""
        pairs = enumerate(zip(self._told, tokens, strict=False))
        shorter = min(len(self._told), len(tokens))
        common = next((i for i, (told, token) in pairs if told != token), shorter)
        if len(self._told) > common:
            self.what.rewind(len(self._told) - common)
            del self._told[common:]
        for token in tokens[common:]:
            self.what.advance(token)
            self._told.append(token)

    def fork(self) -> _Follower:
        """An independent copy at the same place."""
        return _Follower(self.what.fork(), self._told)


class Processing:
    """What a session does to a row of logits before a token is chosen from it."""

    def __init__(
        self, processors: Sequence[LogitsProcessor] = (), token_mask: TokenMask | None = None
    ) -> None:
        for given in [] if token_mask is None else [token_mask]:
            if not isinstance(cast("object", given), TokenMask):
                needed = "allowed, advance, rewind and fork"
                raise DecoderError(f"a {type(given).__name__} is no token mask: it needs {needed}")
        self._processors: list[LogitsProcessor | _Follower] = [
            _Follower(p) if isinstance(p, Following) else p for p in processors
        ]
        self._mask = None if token_mask is None else _Follower(token_mask)
        self._prompt_length = 0

    @property
    def prompt_length(self) -> int:
        """How many tokens of the history come before the ones that states follow."""
        return self._prompt_length

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._processors) or self._mask is not None

    def begin(self, prompt_length: int) -> None:
        """The first so many tokens of the history are the prompt."""
        self._prompt_length = prompt_length

    def row(self, history: Sequence[int], logits: mx.array) -> mx.array:
        """Logits [1, V] of the token after the history, processed.

        Raises:
            DecoderError: a processor gives no logits of the shape it was given, the mask is of
                another shape or type, or it allows no token.
        """
        self.settle(history)
        tokens = mx.array(list(history))
        for processor in self._processors:
            call = processor.what if isinstance(processor, _Follower) else processor
            logits = _like(logits, cast("LogitsProcessor", call)(tokens, logits), call)
        return logits if self._mask is None else self._masked(self._mask.what, logits)

    def settle(self, history: Sequence[int]) -> None:
        """Put every state where the history's emitted tokens put it."""
        emitted = history[self._prompt_length :] if self._followers else []
        for follower in self._followers:
            follower.move_to(emitted)

    def fork(self) -> Processing:
        """An independent copy; processors without a state are shared."""
        twin = Processing()
        twin._processors = [p.fork() if isinstance(p, _Follower) else p for p in self._processors]
        twin._mask = None if self._mask is None else self._mask.fork()
        twin._prompt_length = self._prompt_length
        return twin

    @property
    def _followers(self) -> list[_Follower]:
        found = [p for p in self._processors if isinstance(p, _Follower)]
        return found if self._mask is None else [*found, self._mask]

    @staticmethod
    def _masked(what: Following, logits: mx.array) -> mx.array:
        allowed = cast("Any", what).allowed()  # a stranger's code: anything
        size = logits.shape[-1]
        right = isinstance(allowed, mx.array) and allowed.dtype == mx.bool_
        if not right or allowed.shape != (size,):
            raise DecoderError(
                f"a token mask is bool [{size}], not {described(allowed)}: let `allowed` of the "
                f"{type(what).__name__} return an mlx array of one bool a token"
            )
        if not allowed.any().item():
            raise DecoderError(
                "the token mask allows no token: let it allow an end of text where its grammar ends"
            )
        return mx.where(allowed, logits, -mx.inf).astype(logits.dtype)


def _like(logits: mx.array, made: object, call: object) -> mx.array:
    """What a processor made of logits, if it is logits."""
    if isinstance(made, mx.array) and made.shape == logits.shape:
        return made
    name = getattr(call, "__name__", type(call).__name__)
    raise DecoderError(
        f"the logits processor {name} returned {described(made)} for logits {logits.shape}: let it "
        "return an mlx array of the shape it was given"
    )
