"""What a runtime offers to be judged: protocol version 1.

A runtime opens a checkpoint folder and gives a session; a session is one sequence being
decoded. It is fed token ids and drafts and hands out tokens, logits and the arrays of its
caches. It never sees an expected value. A runtime starts with the first capability and adds
others as it can; cases that need more are reported as unsupported.

This module needs the standard library and mlx alone. `docs/runtime-protocol.md` is the page
for authors, with a complete adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

import mlx.core as mx

PROTOCOL_VERSION = 1


class Capability(str, Enum):
    """What a runtime can do beyond opening a model and prefilling."""

    STREAM = "stream"  # generate, with drafts of its own
    GUESS = "guess"  # generate with given drafts
    DRAFTS = "drafts"  # round: verify given drafts; acceptance counts
    LOGITS = "logits"  # logits of every verified row
    STATE = "state"  # named arrays of the target's caches
    HEAD_STATE = "head-state"  # named arrays of the head's cache
    TIMING = "timing"  # seconds by phase
    SLOW_REWIND = "slow-rewind"  # rewinds that can be made slow, to see who is charged for it
    COUNTERS = "counters"  # counts of a round, such as routed expert calls in its rewind
    FORK = "fork"  # an independent copy of a session
    SAVE = "save"  # save to a file and restore from it
    CANCEL = "cancel"  # give up a round and go on from the frontier
    CONTINUE = "continue"  # run more prompt tokens on the same caches
    POISON = "poison"  # memory past the frontier that can be filled, to see that nobody reads it
    KV_BITS = "kv-bits"  # keys and values in a quantised cache
    SAMPLING = "sampling"  # temperature, cuts, seed and acceptance of the options
    PENALTY = "penalty"  # the options' repetition penalty
    MASK = "mask"  # the options' allowed tokens
    EXPERTS = "experts"  # routed experts on disk, under the options' budgets
    TEXT = "text"  # generate up to a stop string; text and log-probabilities of what it emitted
    ROW_EXACT = "row-exact"  # verify passes whose rows are computed as one-token steps compute them
    POLICY = "policy"  # K chosen by a policy, which can be asked what it would choose


LEVELS: Mapping[str, tuple[Capability, ...]] = {
    "stream": (Capability.STREAM,),
    "drafts": (Capability.GUESS, Capability.DRAFTS),
    "logits": (Capability.LOGITS,),
    "state": (Capability.STATE, Capability.HEAD_STATE, Capability.POISON, Capability.KV_BITS),
    "timing": (Capability.TIMING, Capability.SLOW_REWIND),
    "counters": (Capability.COUNTERS,),
    "lifecycle": (Capability.FORK, Capability.SAVE, Capability.CANCEL, Capability.CONTINUE),
    "experts": (Capability.EXPERTS,),
    "sampling": (Capability.SAMPLING, Capability.PENALTY, Capability.MASK),
    "text": (Capability.TEXT,),
    "policy": (Capability.POLICY,),
    "row-exact": (Capability.ROW_EXACT,),
}
"""Capabilities by level; a runtime may offer part of a level."""

EXPERT_COUNTERS = tuple(
    f"{part}expert_{count}"
    for part in ("", "head_")
    for count in ("requests", "hits", "reads", "bytes_read", "reads_in_rewind")
)
"""EXPERTS: counts of a call, for the target's experts and the head's. A request is an expert of a
layer that some row of one pass chose, a hit a request of one that was in memory; reads are experts
read from disk, `bytes_read` bytes of them."""


@dataclass(frozen=True)
class Description:
    """A runtime's card.

    Attributes:
        name: of the runtime.
        versions: of the packages that matter.
        capabilities: what it offers.
        models: names of the models it can open; empty if it will try any folder.
        strategies: ways of rewinding it can be told to use; the first is its default.
        head_rows: what head rows of accepted drafts can be made from: `draft`, the drafting
            chain's hidden, or `target`, the verified residual; the first is the default.
        max_draft_tokens: largest K.
        after_stop: where the caches are once `generate` ended: at the `frontier`, holding every
            emitted token but the last; at all `emitted` tokens; or anywhere in the verified
            `block`, of which nothing is claimed then.
        depth_policies: POLICY: ways of choosing K round by round.
        notes: what a reader of the report should know, by topic: how a model is loaded where
            that is not the runtime's own loader, which settings make it draft.
    """

    name: str
    versions: Mapping[str, str]
    capabilities: frozenset[Capability]
    models: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("default",)
    head_rows: tuple[str, ...] = ("draft",)
    max_draft_tokens: int = 8
    after_stop: str = "frontier"
    depth_policies: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Options:
    """How a session is to decode. A runtime may ignore what it does not know.

    Attributes:
        strategy: one of the description's; the empty string for the default.
        head_rows: `draft` or `target`, what the head's rows of accepted drafts are made from.
        prefill_step_size: prompt tokens a prefill pass.
        kv_bits: bits of a quantised key or value, 0 for plain ones. Only asked for of a
            runtime with KV_BITS.
        kv_group_size: how many of them share a scale.
        quantized_kv_start: tokens in the caches from which on they are quantised: before the first
            pass that finds so many.
        expert_budget: EXPERTS: leave the target's routed experts in the checkpoint's files and
            keep at most so many bytes of them in memory, from none when the session opens; 0
            keeps all of them in memory. A prompt may take a whole layer's besides.
        head_expert_budget: likewise for the head's experts.
        group_experts: EXPERTS: `on` computes rows sorted by expert where there are enough of
            them, `off` never; empty for the runtime's own way.
        temperature: SAMPLING: 0 decodes greedily, whatever the next five say. The cuts look at
            the distribution at temperature 1, and the temperature reshapes what they leave.
        top_p: keep the likeliest tokens whose probabilities come to this; 1 keeps all.
        top_k: keep this many of the likeliest tokens; 0 keeps all.
        min_p: keep tokens at least this times as likely as the likeliest; 0 keeps all.
        seed: of every random number.
        acceptance: when a draft stands. `match`: if it is the token that would be sampled
            there without drafts, so that the seed gives the same tokens for every K.
            `rejection`: with probability min(1, p/q), so that the law is that of K=0.
        repetition_penalty: PENALTY: positive logits of recent tokens are divided by it,
            negative ones multiplied; 1 changes nothing.
        repetition_context_size: how many tokens, the prompt's included, are recent.
        allowed_tokens: MASK: the i-th emitted token, from 0, is one of the i-th of these
            lists; they start again after the last. Empty: any token.
        depth_policy: POLICY: one of the description's; the empty string drafts as deep as it may.
        row_exact: ROW_EXACT: compute every row of a verify pass as a one-token step does, so that
            the tokens of every K are those of K=0 to the bit.
    """

    strategy: str = ""
    head_rows: str = "draft"
    prefill_step_size: int = 2048
    kv_bits: int = 0
    kv_group_size: int = 64
    quantized_kv_start: int = 0
    expert_budget: int = 0
    head_expert_budget: int = 0
    group_experts: str = ""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    acceptance: str = "match"
    repetition_penalty: float = 1.0
    repetition_context_size: int = 20
    allowed_tokens: Sequence[Sequence[int]] = ()
    depth_policy: str = ""
    row_exact: bool = False

    @property
    def greedy(self) -> bool:
        """Whether an emitted token is the likeliest of its row as the model gives it."""
        return not self.temperature and self.repetition_penalty == 1 and not self.allowed_tokens


@dataclass(frozen=True)
class Outcome:
    """What a prefill or a round emitted.

    Attributes:
        accepted: a, how many of the K drafts stand.
        tokens: the a+1 emitted token ids; a prefill emits one.
        logits: [K+1, V], row i after i drafts; rows past a are of rejected drafts. None
            without the capability.
        counters: counts of this round alone: `expert_calls_in_verify`,
            `expert_calls_in_rewind`, `head_expert_calls_in_rewind`. With EXPERTS those of
            `EXPERT_COUNTERS`, of a prefill too.
    """

    accepted: int
    tokens: tuple[int, ...]
    logits: mx.array | None = None
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Generated:
    """What a call of `generate` emitted, and what its drafts did.

    Attributes:
        tokens: emitted token ids, the stop included.
        drafted: draft tokens verified.
        accepted: draft tokens that stood.
        drafts: what the runtime drafted, a tuple a verify pass, where it shows that; else empty.
        text: TEXT: of the emitted tokens, up to where a stop string begins.
        logprobs: TEXT: the log-probability of every emitted token.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    drafts: tuple[tuple[int, ...], ...] = ()
    text: str = ""
    logprobs: tuple[float, ...] = ()

    @property
    def engagement(self) -> dict[str, int]:
        """Counts for a witness."""
        rejected = self.drafted - self.accepted
        return {"drafted": self.drafted, "accepted": self.accepted, "rejected": rejected}


@dataclass(frozen=True)
class Trial:
    """A round as a policy will find it, however many drafts it chooses.

    Attributes:
        stand: drafts that will stand, if there are as many.
        draft_seconds: of one draft.
        verify_seconds: of a verify pass with 0, 1, .. drafts.
        rewind_seconds: of the rewind, if a draft is rejected.
    """

    stand: int
    draft_seconds: float
    verify_seconds: Sequence[float]
    rewind_seconds: float


class RuntimeSession(Protocol):
    """One sequence being decoded.

    The caches hold every emitted token but the last one. Only `prefill` and `close` are
    needed; a method a runtime does not list a capability for is never called.
    """

    def prefill(self, tokens: Sequence[int], /) -> Outcome:
        """Run the prompt and emit the first token."""
        ...

    def round(self, drafts: Sequence[int], /) -> Outcome:
        """DRAFTS: verify these drafts, keep the accepted ones, rewind, emit one token more.

        Without drafts this is a one-token step.
        """
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
        stop_strings: Sequence[str] = (),
    ) -> Generated:
        """STREAM: prefill and decode to an end; the session stays there.

        `guess[i]` is the draft for the i-th emitted token (GUESS); without it the head
        drafts. With `num_draft_tokens=0` this is plain decoding. `stop_strings` are given
        to a runtime with TEXT alone: the token that completes one is the last.
        """
        ...

    def depths(
        self, requests: Sequence[Sequence[Trial]], /, *, num_draft_tokens: int
    ) -> list[list[int]]:
        """POLICY: K for every round of these requests, one after another, by a fake clock.

        The options' policy, new and with nothing measured, is asked for up to
        `num_draft_tokens` drafts and told what the trial makes of its choice. Nothing is
        decoded and no real time is taken.
        """
        ...

    def state(self) -> dict[str, mx.array]:
        """STATE: every cache array as a copy, `layers.I.component`, in the canonical layout.

        HEAD_STATE: and `head.I.component`.
        """
        ...

    def poison(self, value: float, /) -> int:
        """POISON: write a number into all memory of the caches past the frontier.

        Rows of rejected drafts, and rows that nothing was ever written to; nothing that is in use.
        Returns how many arrays had such memory.
        """
        ...

    def timings(self) -> dict[str, float]:
        """TIMING: seconds spent so far by phase: prefill, draft, verify, accept, rewind."""
        ...

    def slow_rewind(self, component: str, steps: int, /) -> None:
        """SLOW_REWIND: let the next rewind leave a part of the state waiting for long work.

        Inside whatever the rewind's timer encloses, once the state has been put back, replace
        the component's arrays in the caches by `mtp_conformance.slowing.slowed` ones, and
        evaluate nothing. For the next round that rejects a draft.

        Args:
            component: `layers.` or `head.` and a name of the canonical layout, such as
                `layers.recurrent`: that of all layers of the target, or of the head.
            steps: how long; for `slowed`.
        """
        ...

    def fork(self, options: Options | None = None, /) -> RuntimeSession:
        """FORK: an independent session at the same place, perhaps with other options."""
        ...

    def save(self, file: Path, /) -> None:
        """SAVE: write the session to a file."""
        ...

    def restore(self, file: Path, /) -> None:
        """SAVE: take over a saved session in place of this one's."""
        ...

    def cancel(self, drafts: Sequence[int] = (), /) -> None:
        """CANCEL: give up whatever is under way; the session stays at its frontier.

        With drafts, begin a round with them first and give it up after its verify pass.
        """
        ...

    def extend(self, tokens: Sequence[int], /) -> Outcome:
        """CONTINUE: run more prompt tokens, the next turn, and emit the token after them.

        The sequence so far, every emitted token included, stays: after it the caches hold
        it and these tokens. Also after `generate` has ended.
        """
        ...

    def close(self) -> None:
        """Give up what the session holds."""
        ...


class SmallestSession(Protocol):
    """What every session has; the rest of `RuntimeSession` goes with the capabilities."""

    def prefill(self, tokens: Sequence[int], /) -> Outcome:
        """See `RuntimeSession`."""
        ...

    def close(self) -> None:
        """See `RuntimeSession`."""
        ...


class Adapter(Protocol):
    """What `serve` takes: a runtime whose sessions have the methods of its capabilities."""

    def describe(self) -> Description:
        """See `Runtime`."""
        ...

    def open(self, model: str, checkpoint: Path, options: Options, /) -> SmallestSession:
        """See `Runtime`."""
        ...


class Runtime(Protocol):
    """A decoder to be judged."""

    def describe(self) -> Description:
        """The runtime's card."""
        ...

    def open(self, model: str, checkpoint: Path, options: Options, /) -> RuntimeSession:
        """Load the checkpoint folder of a model, or reuse it, and start a session.

        Raises:
            Exception: whatever says why it cannot; the cases of that model become errors. A
                message that starts with `unsupported:` makes them unsupported.
        """
        ...
