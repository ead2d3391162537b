"""A runtime's answers, checked before anything is judged by them.

The wrapper refuses answers no decoder may give (a wrong number of tokens, logits of another
shape, NaN, arrays with unknown names) and offers `fork` for runtimes without it, by decoding
the same rounds again in a session of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import mlx.core as mx

from mtp_conformance import answers
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.injecting import Injector
from mtp_conformance.protocol import (
    Capability,
    Description,
    Generated,
    Options,
    Outcome,
    Runtime,
    RuntimeSession,
    Trial,
)
from mtp_conformance.verdict import Unsupported

T = TypeVar("T")
U = TypeVar("U")
State = dict[str, mx.array]
Steps = tuple[tuple[str, tuple[int, ...]], ...]
"""What was done to a session: operations and their tokens."""
_UNSUPPORTED = "unsupported:"


class CheckedRuntime:
    """A runtime whose every answer is checked.

    Attributes:
        row_exact: whether all of its sessions are told to decode row-exact.
    """

    def __init__(self, runtime: Runtime, *, row_exact: bool = False) -> None:
        self._runtime = runtime
        self.row_exact = row_exact
        self.description: Description = self.answer(
            "describe", runtime.describe, answers.description
        )
        self.vocabularies: dict[str, int] = {}
        self.steps_in: dict[Path, Steps] = {}
        self.dropped: list[RuntimeSession] | None = None
        """Sessions that nobody holds any more, to be closed before the next one begins; None
        leaves closing to the runtime's end."""

    @property
    def generation(self) -> int:
        """How often the runtime's process was started anew; sessions of an older one are gone."""
        return getattr(self._runtime, "generation", 0)

    @property
    def in_process(self) -> bool:
        """Whether the runtime runs in this process, under this process's mlx settings."""
        return not hasattr(self._runtime, "generation")

    def answer(self, operation: str, call: Callable[[], T], check: Callable[[T], U]) -> U:
        """Ask the runtime and check what it says.

        Raises:
            Unsupported: it said `unsupported: why`.
            RuntimeFailure: it raised, or its answer is not one; with the tail of its stderr.
        """
        given = guarded(operation, call)
        try:
            return check(given)
        except answers.BadAnswer as error:
            tail = getattr(self._runtime, "stderr_tail", str)()
            raise RuntimeFailure(str(error), tail) from error

    def told(self, options: Options) -> Options:
        """Options as they are handed to the runtime."""
        return replace(options, row_exact=True) if self.row_exact else options

    def offers(self, *capabilities: Capability) -> bool:
        """Whether the runtime lists all of these."""
        return set(capabilities) <= self.description.capabilities

    @contextmanager
    def failing(self, evaluation: int) -> Generator[list[bool]]:
        """Let an evaluation of the runtime raise, counted from here.

        Yields:
            A list that holds, once this ends, whether it did.

        Raises:
            Unsupported: the runtime's process cannot do this.
        """
        raised: list[bool] = []
        if self.in_process:
            injector = Injector()
            injector.arm(evaluation)
            try:
                yield raised
            finally:
                raised.append(injector.disarm())
            return
        inject: Callable[[int], bool] = cast("Any", self._runtime).inject
        guarded("inject", lambda: inject(evaluation))
        try:
            yield raised
        finally:
            raised.append(guarded("inject", lambda: inject(0)))

    def open(self, model: str, checkpoint: Path, options: Options) -> CheckedSession:
        """A new session.

        Raises:
            Unsupported: the runtime cannot open this model.
            RuntimeFailure: it failed to.
        """
        known = self.description.models
        if known and model not in known:
            raise Unsupported(f"{self.description.name} cannot open {model}")
        return CheckedSession(self, model, checkpoint, options)

    def watch(self, session: CheckedSession, inner: RuntimeSession) -> None:
        """Close the runtime's session once nobody holds its wrapper, if that is asked for."""
        if self.dropped is not None:
            weakref.finalize(session, self.dropped.append, inner).atexit = False

    def close_dropped(self) -> None:
        """Close what nobody holds any more."""
        while self.dropped:
            inner = self.dropped.pop()
            with suppress(RuntimeFailure, Unsupported):  # its process may be gone
                guarded("close", inner.close)

    def start(self, model: str, checkpoint: Path, options: Options) -> RuntimeSession:
        """Open the runtime's own session."""
        self.close_dropped()
        return self.answer(
            "open",
            lambda: self._runtime.open(model, checkpoint, options),
            lambda value: answers.session(value, "open"),
        )


class CheckedSession:
    """A session whose every answer is checked, and which can always be forked."""

    def __init__(
        self,
        runtime: CheckedRuntime,
        model: str,
        checkpoint: Path,
        options: Options,
        inner: RuntimeSession | None = None,
    ) -> None:
        self._runtime = runtime
        self._origin = (model, checkpoint)
        self._options = runtime.told(options)
        self._inner = inner or runtime.start(model, checkpoint, self._options)
        self._steps: Steps = ()
        runtime.watch(self, self._inner)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        outcome = self._outcome("prefill", lambda: self._inner.prefill(tokens), drafts=0)
        self._note("prefill", tokens)
        return outcome

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol."""
        given = tuple(drafts)
        outcome = self._outcome("round", lambda: self._inner.round(given), drafts=len(given))
        self._note("round", given)
        return outcome

    def unseen(self, operation: str, tokens: Sequence[int]) -> None:
        """A prefill or round whose answer is not looked at: looking takes time, and waits."""
        given, call = tuple(tokens), getattr(self._inner, operation)
        guarded(operation, lambda: call(given))
        self._note(operation, given)

    def extend(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        outcome = self._outcome("extend", lambda: self._inner.extend(tokens), drafts=0)
        self._note("extend", tokens)
        return outcome

    def _note(self, operation: str, tokens: Sequence[int]) -> None:
        self._steps += ((operation, tuple(tokens)),)

    def generate(
        self,
        tokens: Sequence[int],
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
        stop_strings: Sequence[str] = (),
    ) -> Generated:
        """See the protocol."""
        # Runtimes without TEXT have no such argument.
        text = {"stop_strings": stop_strings} if stop_strings else {}
        return self._runtime.answer(
            "generate",
            lambda: self._inner.generate(
                tokens,
                num_draft_tokens=num_draft_tokens,
                max_tokens=max_tokens,
                eos_token_ids=eos_token_ids,
                stop_sequences=stop_sequences,
                guess=guess,
                **text,
            ),
            lambda made: answers.generated(made, num_draft_tokens),
        )

    def depths(
        self, requests: Sequence[Sequence[Trial]], *, num_draft_tokens: int
    ) -> list[list[int]]:
        """See the protocol."""
        return self._runtime.answer(
            "depths",
            lambda: self._inner.depths(requests, num_draft_tokens=num_draft_tokens),
            lambda value: answers.depths(value, list(map(len, requests)), num_draft_tokens),
        )

    def state(self) -> State:
        """See the protocol; copies, in case the runtime handed out what it writes into."""
        keeps_head = self._runtime.offers(Capability.HEAD_STATE)
        return {
            name: mx.array(array)
            for name, array in self.uncopied_state().items()
            if keeps_head or not name.startswith("head.")
        }

    def uncopied_state(self) -> State:
        """The very arrays the runtime handed out."""
        return self._runtime.answer("state", self._inner.state, answers.state)

    def unevaluated_state(self) -> State:
        """What the runtime handed out, not looked at: looking evaluates it.

        For a runtime in this process; one in its own has written its arrays to a file.
        """
        return guarded("state", self._inner.state)

    def poison(self, value: float) -> int:
        """See the protocol."""
        return guarded("poison", lambda: int(self._inner.poison(value)))

    def timings(self) -> dict[str, float]:
        """See the protocol."""
        return self._runtime.answer("timings", self._inner.timings, answers.timings)

    def slow_rewind(self, component: str, steps: int) -> None:
        """See the protocol."""
        guarded("slow_rewind", lambda: self._inner.slow_rewind(component, steps))

    def cancel(self, drafts: Sequence[int] = ()) -> None:
        """See the protocol."""
        guarded("cancel", lambda: self._inner.cancel(drafts) if drafts else self._inner.cancel())

    def save(self, file: Path) -> None:
        """See the protocol."""
        guarded("save", lambda: self._inner.save(file))
        if not file.is_file():
            raise RuntimeFailure("save wrote no file of the name it was given")
        self._runtime.steps_in[file] = self._steps

    def restore(self, file: Path) -> None:
        """See the protocol."""
        guarded("restore", lambda: self._inner.restore(file))
        self._steps = self._runtime.steps_in.get(file, ())

    def fork(self, options: Options | None = None) -> CheckedSession:
        """An independent session at the same place; decoded again where the runtime cannot."""
        chosen = self._runtime.told(options or self._options)
        inner = None
        if self._runtime.offers(Capability.FORK):
            self._runtime.close_dropped()
            inner = self._runtime.answer(
                "fork",
                lambda: self._inner.fork(chosen),
                lambda value: answers.session(value, "fork"),
            )
        twin = CheckedSession(self._runtime, *self._origin, chosen, inner)
        if inner is None:
            for operation, tokens in self._steps:
                getattr(twin, operation)(tokens)
        twin._steps = self._steps
        return twin

    def close(self) -> None:
        """See the protocol."""
        guarded("close", self._inner.close)

    def _outcome(self, operation: str, call: Callable[[], Outcome], drafts: int) -> Outcome:
        def check(value: Outcome) -> Outcome:
            found = answers.outcome(value, drafts, operation)
            if self._runtime.offers(Capability.LOGITS):
                size = self._runtime.vocabularies.get(self._origin[0])
                chosen = found.tokens if self._options.greedy else None
                rows = answers.logits(found.logits, drafts + 1, size, chosen)
                self._runtime.vocabularies[self._origin[0]] = rows.shape[-1]
            return found

        return self._runtime.answer(operation, call, check)


def guarded(operation: str, call: Callable[[], T]) -> T:
    """Call into a runtime; whatever it raises becomes a failure of the runtime.

    Raises:
        Unsupported: the runtime said `unsupported: why`.
        RuntimeFailure: anything else it raised.
    """
    try:
        return call()
    except (RuntimeFailure, Unsupported):
        raise
    except (Exception, SystemExit) as error:  # a stranger's code; its cases become errors
        message = str(error)
        if message.startswith(_UNSUPPORTED):
            raise Unsupported(message.removeprefix(_UNSUPPORTED).strip()) from error
        raise RuntimeFailure(f"{operation}: {type(error).__name__}: {message}") from error


def as_counts(counters: Mapping[str, int], *names: str) -> list[int]:
    """Counters by name.

    Raises:
        RuntimeFailure: one is missing.
    """
    missing = [name for name in names if name not in counters]
    if missing:
        raise RuntimeFailure(f"claims to count and does not count {', '.join(missing)}")
    return [counters[name] for name in names]
