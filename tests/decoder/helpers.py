"""What the decoder's tests share: a prompt, scripted drafts, caches as named bytes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import mlx.core as mx
import numpy as np

from mtp_conformance.exactness import require_equal
from mtp_decoder import Head, Session, Target
from mtp_decoder.session import Round
from reference_models.prompts import prompt_tokens

PROMPT = prompt_tokens(13)
VOCABULARY = 260
STRATEGIES = ("tape", "rerun", "snapshot", "replay")
POLICIES = ("draft", "target")


class PlantedError(Exception):
    """A failure that a test planted."""


def fail(*arguments: Any, **named: Any) -> Any:
    """Take the place of any part of a model, and raise."""
    raise PlantedError


def frozen(caches: Sequence[Any]) -> dict[str, mx.array]:
    """Every attribute of every cache as bytes in memory of their own, spare rows included."""
    found: dict[str, mx.array] = {}
    for index, cache in enumerate(caches):
        for name, value in vars(cache).items():
            found |= _frozen(value, f"{index}.{name}")
    return found


def _frozen(value: Any, name: str) -> dict[str, mx.array]:
    if isinstance(value, mx.array):
        raw = np.frombuffer(memoryview(cast("Any", value)).tobytes(), np.uint8)
        return {f"{name}:{value.dtype}{value.shape}": mx.array(raw)}
    if isinstance(value, list | tuple):
        parts = enumerate(cast("Sequence[Any]", value))
        return {k: a for i, part in parts for k, a in _frozen(part, f"{name}.{i}").items()}
    if hasattr(value, "__dict__"):
        return {f"{name}.{key}": array for key, array in frozen([value]).items()}
    return {f"{name}:{value}": mx.array(0)}


@contextmanager
def untouched(caches: Sequence[Any]) -> Generator[None]:
    """Demand that the enclosed lines leave every cache bit for bit as it was."""
    before = frozen(caches)
    yield
    require_equal(frozen(caches), before, what="the cache before the call")


def target_arrays(state: dict[str, mx.array]) -> dict[str, mx.array]:
    """The arrays of the target's caches, without the head's."""
    return {name: array for name, array in state.items() if not name.startswith("head.")}


def head_rows(state: dict[str, mx.array]) -> dict[str, mx.array]:
    """The arrays of the head's caches, without the hidden that waits at the frontier."""
    return {n: a for n, a in state.items() if n.startswith("head.") and "frontier" not in n}


def scripted(stream: Sequence[int], emitted: int, k: int, accepted: int) -> list[int]:
    """K drafts of which exactly the first `accepted` are what the stream says."""
    right = list(stream[emitted : emitted + accepted])
    if accepted == k:
        return right
    return [*right, (stream[emitted + accepted] + 1) % 256, *[256, 101, 256][: k - accepted - 1]]


class Plain:
    """A run without drafts: its tokens, and its state after any number of them."""

    def __init__(self, target: Target, prompt: Sequence[int] = PROMPT) -> None:
        self._session = Session(target)
        self._tokens = list(self._session.prefill(prompt).tokens)
        self._states = [self._session.state()]

    def _advance(self, count: int) -> None:
        while len(self._tokens) < count:
            self._tokens += self._session.round().tokens
            self._states.append(self._session.state())

    def tokens(self, count: int) -> list[int]:
        """The first tokens."""
        self._advance(count)
        return self._tokens[:count]

    def state(self, count: int) -> dict[str, mx.array]:
        """The state once that many tokens were emitted."""
        self._advance(count)
        return self._states[count - 1]


def play(session: Session, stream: Sequence[int], emitted: int, k: int, accepted: int) -> Round:
    """A round of k scripted drafts, of which exactly `accepted` are right."""
    return session.round(drafts=scripted(stream, emitted, k, accepted))


class Source:
    """A draft source that knows the stream, errs at some places and remembers each K."""

    def __init__(self, stream: Sequence[int], wrong: Sequence[int] = ()) -> None:
        self.asked: list[int] = []
        self._stream = [(t + 1) % 256 if i in wrong else t for i, t in enumerate(stream)]

    def __call__(self, history: Sequence[int], k: int) -> list[int]:
        """The next k tokens of the stream, right but for the places named."""
        self.asked.append(k)
        at = len(history) - len(PROMPT)
        return self._stream[at : at + k]


class OtherCaches:
    """A target whose layers get other caches; everything else is the wrapped target's."""

    def __init__(self, target: Target, caches: dict[int, Any]) -> None:
        self.vocab_size = target.vocab_size
        self.layers = target.layers
        self._target = target
        self._caches = caches

    def make_cache(self) -> list[Any]:
        """The target's caches, some of them replaced."""
        made = self._target.make_cache()
        return [self._caches.get(index, cache) for index, cache in enumerate(made)]

    def embed(self, tokens: mx.array) -> mx.array:
        """As the target."""
        return self._target.embed(tokens)

    def logits(self, hidden: mx.array) -> mx.array:
        """As the target."""
        return self._target.logits(hidden)


def head_lengths(caches: Sequence[Any], target: Target, head: Head) -> list[int]:
    """Rows of every layer of the head in a prompt cache of both."""
    count = len(target.layers)
    own = caches[count : count + len(head.layers)]
    return [cache[0].offset if hasattr(cache, "caches") else cache.offset for cache in own]
