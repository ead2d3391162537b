"""What a runtime offers to be judged.

A runtime opens a checkpoint folder and gives a session; a session is one sequence being
decoded. It is fed token ids and drafts and hands out tokens, logits and the arrays of its
caches. It never sees an expected value.

This module needs the standard library and mlx alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

import mlx.core as mx


class Capability(str, Enum):
    """What a case may need."""

    STREAM = "stream"  # generate
    DRAFTS = "drafts"  # round with injected drafts, acceptance counts
    LOGITS = "logits"  # logits of every verified row
    STATE = "state"  # named arrays of target caches
    HEAD_STATE = "head-state"  # named arrays of the head's cache
    COUNTERS = "counters"  # routed expert calls
    FORK = "fork"  # independent copies of a session


@dataclass(frozen=True)
class Description:
    """A runtime's card.

    Attributes:
        name: of the runtime.
        versions: of the packages that matter.
        capabilities: what it offers; cases needing more are unsupported.
        models: names of the models it can open.
        strategies: ways of rewinding it can be told to use.
        max_draft_tokens: largest K.
    """

    name: str
    versions: Mapping[str, str]
    capabilities: frozenset[Capability]
    models: tuple[str, ...]
    strategies: tuple[str, ...]
    max_draft_tokens: int


@dataclass(frozen=True)
class Options:
    """How a session is to decode."""

    strategy: str = "tape"
    head_rows: str = "draft"
    prefill_step_size: int = 2048


@dataclass(frozen=True)
class Outcome:
    """What a prefill or a round emitted.

    Attributes:
        accepted: a, how many of the K drafts stand.
        tokens: the a+1 emitted token ids; a prefill emits one.
        logits: [K+1, V], row i after i drafts; rows past a are of rejected drafts.
        counters: counts of this round alone, such as `expert_calls_in_rewind`.
    """

    accepted: int
    tokens: tuple[int, ...]
    logits: mx.array
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


class RuntimeSession(Protocol):
    """One sequence being decoded."""

    def prefill(self, tokens: Sequence[int], /) -> Outcome:
        """Run the prompt and emit the first token."""
        ...

    def round(self, drafts: Sequence[int], /) -> Outcome:
        """Verify the given drafts, keep the accepted ones, rewind, emit one token more."""
        ...

    def generate(
        self,
        tokens: Sequence[int],
        /,
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
    ) -> list[int]:
        """Prefill and decode to an end; the session stays there and can be looked at.

        `guess[i]` is the draft for the i-th emitted token; None lets the head draft.
        """
        ...

    def engagement(self) -> dict[str, int]:
        """Drafts so far: `drafted`, `accepted`, `rejected`."""
        ...

    def state(self) -> dict[str, mx.array]:
        """Every cache array, `layers.I.component` and `head.I.component`, canonical layout."""
        ...

    def fork(self, options: Options | None = None, /) -> RuntimeSession:
        """An independent session at the same place, perhaps with other options."""
        ...

    def close(self) -> None:
        """Give up what the session holds."""
        ...


class Runtime(Protocol):
    """A decoder to be judged."""

    def describe(self) -> Description:
        """The runtime's card."""
        ...

    def open(self, model: str, checkpoint: Path, options: Options, /) -> RuntimeSession:
        """Load the checkpoint folder of a model, or reuse it, and start a session."""
        ...

    def checkpoint(self, model: str, dtype: str, folder: Path, /) -> Path:
        """Write the model's checkpoint below `folder` where no shipped one exists."""
        ...
