"""A runtime's answers, checked before anything is judged by them.

The wrapper refuses answers no decoder may give (a wrong number of tokens, logits of another
shape, NaN, arrays with unknown names) and offers `fork` for runtimes without it, by decoding
the same rounds again in a session of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import mlx.core as mx

from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import (
    Capability,
    Description,
    Generated,
    Options,
    Outcome,
    Runtime,
    RuntimeSession,
)
from mtp_conformance.verdict import Unsupported

T = TypeVar("T")
State = dict[str, mx.array]
_NAME = re.compile(r"(layers|head)\.(\d+|frontier)\.[a-z_]+")
_UNSUPPORTED = "unsupported:"


class CheckedRuntime:
    """A runtime whose every answer is checked."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.description: Description = runtime.describe()
        self.vocabularies: dict[str, int] = {}

    @property
    def generation(self) -> int:
        """How often the runtime's process was started anew; sessions of an older one are gone."""
        return getattr(self._runtime, "generation", 0)

    def offers(self, *capabilities: Capability) -> bool:
        """Whether the runtime lists all of these."""
        return set(capabilities) <= self.description.capabilities

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

    def start(self, model: str, checkpoint: Path, options: Options) -> RuntimeSession:
        """Open the runtime's own session."""
        return guarded("open", lambda: self._runtime.open(model, checkpoint, options))


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
        self._options = options
        self._inner = inner or runtime.start(model, checkpoint, options)
        self._prompt: tuple[int, ...] = ()
        self._rounds: list[tuple[int, ...]] = []

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        outcome = guarded("prefill", lambda: self._inner.prefill(tokens))
        self._prompt = tuple(tokens)
        return self._check_outcome(outcome, drafts=0)

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol."""
        outcome = guarded("round", lambda: self._inner.round(tuple(drafts)))
        self._rounds.append(tuple(drafts))
        return self._check_outcome(outcome, drafts=len(drafts))

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
        """See the protocol."""
        made = guarded(
            "generate",
            lambda: self._inner.generate(
                tokens,
                num_draft_tokens=num_draft_tokens,
                max_tokens=max_tokens,
                eos_token_ids=eos_token_ids,
                stop_sequences=stop_sequences,
                guess=guess,
            ),
        )
        if not 0 < len(made.tokens) <= max_tokens:
            raise RuntimeFailure(f"generate emitted {len(made.tokens)} tokens of {max_tokens}")
        if not 0 <= made.accepted <= made.drafted:
            raise RuntimeFailure(f"generate says {made.accepted} of {made.drafted} accepted")
        if num_draft_tokens == 0 and made.drafted:
            raise RuntimeFailure(f"generate drafted {made.drafted} tokens with K=0")
        return made

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
        state = guarded("state", self._inner.state)
        if not state:
            raise RuntimeFailure(
                "state has no array; return every cache array as layers.I.component, "
                "or leave `state` out of the capabilities"
            )
        for name, array in state.items():
            if not _NAME.fullmatch(name):
                raise RuntimeFailure(
                    f"state has an array {name!r}; names are layers.I.component, head.I.component"
                )
            if not isinstance(cast("object", array), mx.array):
                raise RuntimeFailure(f"state's {name} is a {type(array).__name__}, not an array")
        return state

    def timings(self) -> dict[str, float]:
        """See the protocol."""
        return guarded("timings", self._inner.timings)

    def cancel(self) -> None:
        """See the protocol."""
        guarded("cancel", self._inner.cancel)

    def fork(self, options: Options | None = None) -> CheckedSession:
        """An independent session at the same place; decoded again where the runtime cannot."""
        chosen = options or self._options
        inner = None
        if self._runtime.offers(Capability.FORK):
            inner = guarded("fork", lambda: self._inner.fork(chosen))
        twin = CheckedSession(self._runtime, *self._origin, chosen, inner)
        if inner is None and self._prompt:
            twin.prefill(self._prompt)
            for drafts in self._rounds:
                twin.round(drafts)
        twin._prompt, twin._rounds = self._prompt, list(self._rounds)
        return twin

    def close(self) -> None:
        """See the protocol."""
        guarded("close", self._inner.close)

    def _check_outcome(self, outcome: Outcome, drafts: int) -> Outcome:
        if not 0 <= outcome.accepted <= drafts:
            raise RuntimeFailure(f"accepted {outcome.accepted} of {drafts} drafts")
        if len(outcome.tokens) != outcome.accepted + 1:
            raise RuntimeFailure(
                f"emitted {len(outcome.tokens)} tokens with {outcome.accepted} drafts accepted; "
                f"{outcome.accepted + 1} are due"
            )
        if any(token < 0 for token in outcome.tokens):
            raise RuntimeFailure(f"emitted negative token ids: {outcome.tokens}")
        if self._runtime.offers(Capability.LOGITS):
            self._check_logits(outcome.logits, drafts + 1)
        return outcome

    def _check_logits(self, logits: mx.array | None, rows: int) -> None:
        if logits is None:
            raise RuntimeFailure("claims to give logits and gave none")
        size = self._runtime.vocabularies.setdefault(self._origin[0], logits.shape[-1])
        if logits.shape != (rows, size):
            raise RuntimeFailure(f"logits are {logits.shape}, not {(rows, size)}")
        if mx.isnan(logits).any().item():
            raise RuntimeFailure("logits hold NaN")


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
    except Exception as error:  # a stranger's code; its cases become errors
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
