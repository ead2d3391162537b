"""One model, data type and prompt, with the expected values its cells share.

Expected values come from the runtime under judgement, by ways that never rewind: K=0 rounds,
rounds given only the drafts that stand, direct forward passes over a committed sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx

from mtp_conformance.checked import CheckedRuntime, CheckedSession
from mtp_conformance.exactness import StateDiffers, require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Capability, Options, Outcome

State = dict[str, mx.array]
EOS = 256
_TAILS = ((EOS, 101, 32, EOS, 116, 10, 97), (10, EOS, 97, 97, EOS, 32, 61))
"""What follows a wrong draft: an end of text and other tokens that disturb every state."""
_STREAM_CHUNK = 32


class GroupKey(NamedTuple):
    """What a group is of: model, data type, prompt length and where in the text it starts.

    With `kv_bits` all its sessions, those of expected values too, keep quantised keys and values.
    """

    model: str
    dtype: str
    prompt_length: int
    start: int = 0
    kv_bits: int = 0
    kv_group_size: int = 64
    quantized_kv_start: int = 0


def target_arrays(state: Mapping[str, mx.array]) -> State:
    """The arrays of the target's caches, without the head's."""
    return {name: array for name, array in state.items() if not name.startswith("head.")}


class ForkMovedOriginal(StateDiffers):
    """A session changed when a fork of it moved: nothing that rests on forks means anything."""


class Group:
    """Prefill once, fork for every cell; K=0 and never-rejected runs as far as asked for."""

    def __init__(
        self, runtime: CheckedRuntime, checkpoint: Path, key: GroupKey, prompt: Sequence[int]
    ) -> None:
        self.runtime = runtime
        self.key = key
        self.prompt = list(prompt)
        self.checkpoint = checkpoint
        self._base = self.open(Options())
        first = self._base.prefill(self.prompt)
        self._plain = self._base.fork()
        self._stream = list(first.tokens)
        self._logits = [first.logits]
        self._states: list[State] = []
        self._never_rejected: dict[tuple[tuple[int, ...], ...], tuple[CheckedSession, State]] = {}
        self._direct: dict[int, State] = {}
        self._last_round: tuple[tuple[str, int, int], tuple[CheckedSession, Outcome]] | None = None
        self._note_state()

    def open(self, options: Options) -> CheckedSession:
        """A session of this model that has seen nothing."""
        return self.runtime.open(self.key.model, self.checkpoint, self._stored(options))

    def prefilled(self, options: Options) -> CheckedSession:
        """An independent session that has seen the prompt."""
        return self._base.fork(self._stored(options))

    def _stored(self, options: Options) -> Options:
        """The options with the group's way of keeping keys and values."""
        key = self.key
        return replace(
            options,
            kv_bits=key.kv_bits,
            kv_group_size=key.kv_group_size,
            quantized_kv_start=key.quantized_kv_start,
        )

    def require_forks_apart(self) -> None:
        """Demand that the next K=0 round, of a fork, leaves the session it was forked from.

        Raises:
            ForkMovedOriginal: names the layer and component that moved.
        """
        if not self.runtime.offers(Capability.STATE, Capability.DRAFTS):
            return
        before = self._base.state()
        self._advance(len(self._stream))
        what = "itself before a fork of it advanced; fork is not independent"
        try:
            require_equal(self._base.state(), before, what=what)
        except StateDiffers as error:
            raise ForkMovedOriginal(
                str(error),
                layer=error.layer,
                component=error.component,
                round=error.round,
                difference=error.difference,
                differing=error.differing,
                rounding=error.rounding,
            ) from error

    def after(self, length: int) -> Group:
        """The group whose prompt is this one's and the first tokens K=0 emits."""
        prompt = [*self.prompt, *self.stream(length)]
        return type(self)(self.runtime, self.checkpoint, self.key, prompt)

    def _note_state(self) -> None:
        if self.runtime.offers(Capability.STATE):
            self._states.append(self._plain.state())

    def _advance(self, rounds: int) -> None:
        if not self.runtime.offers(Capability.DRAFTS):
            self._generate_plainly(rounds + 1)
        while len(self._stream) <= rounds:
            outcome = self._plain.round(())
            self._stream += outcome.tokens
            self._logits.append(outcome.logits)
            self._note_state()

    def _generate_plainly(self, length: int) -> None:
        """For a runtime without rounds: K=0 as one call."""
        if len(self._stream) < length:
            length = -(-length // _STREAM_CHUNK) * _STREAM_CHUNK
            made = self.open(Options()).generate(self.prompt, num_draft_tokens=0, max_tokens=length)
            self._stream = list(made.tokens[:length])
            if len(self._stream) < length:
                raise RuntimeFailure(f"K=0 emitted {len(self._stream)} tokens of {length}")

    def stream(self, length: int) -> list[int]:
        """The first tokens K=0 emits; token 0 comes from the prefill."""
        self._advance(length - 1)
        return self._stream[:length]

    def plain_logits(self, index: int) -> mx.array:
        """Logits [1, V] from which K=0 chose token `index`."""
        self._advance(index)
        logits = self._logits[index]
        assert logits is not None
        return logits

    def plain_state(self, rounds: int) -> State:
        """State of the K=0 run after that many rounds."""
        self._advance(rounds)
        return self._states[rounds]

    def direct_state(self, rounds: int) -> State:
        """State of one forward pass over the prompt and the tokens of that many rounds."""
        if rounds not in self._direct:
            session = self.open(Options())
            session.prefill([*self.prompt, *self.stream(rounds)])
            self._direct[rounds] = session.state()
        return self._direct[rounds]

    def never_rejected_state(self, accepted: Sequence[Sequence[int]]) -> State:
        """State after rounds that were given the accepted drafts alone, all of them right."""
        return self._twin(tuple(tuple(drafts) for drafts in accepted))[1]

    def _twin(self, rounds: tuple[tuple[int, ...], ...]) -> tuple[CheckedSession, State]:
        if rounds not in self._never_rejected:
            session = self._twin(rounds[:-1])[0].fork() if rounds else self._base.fork()
            if rounds:
                session.round(rounds[-1])
            self._never_rejected[rounds] = session, session.state()
        return self._never_rejected[rounds]

    def rewound(self, strategy: str, k: int, accepted: int) -> tuple[CheckedSession, Outcome]:
        """A session after one round with a reject, and what the round gave; fork it to go on.

        The last one is kept, for the cases that look at the same round.
        """
        key = (strategy, k, accepted)
        if self._last_round is None or self._last_round[0] != key:
            session = self.prefilled(Options(strategy=strategy))
            self._last_round = key, (session, session.round(self.drafts(1, k, accepted)))
        return self._last_round[1]

    def drafts(self, emitted: int, k: int, accepted: int, *, tail: int = 0) -> list[int]:
        """K drafts of which exactly the first `accepted` are what K=0 emits.

        Args:
            emitted: tokens emitted so far, the prefill's included.
            k: number of drafts.
            accepted: how many are right; the next one is certainly wrong.
            tail: 0 or 1, which of two sets of rejected drafts; they have no token in common
                at any place.
        """
        stream = self.stream(emitted + accepted + 1)
        right = stream[emitted : emitted + accepted]
        if accepted == k:
            return right
        wrong = (stream[emitted + accepted] + 1 + tail) % EOS
        rest = [_TAILS[tail][i % len(_TAILS[tail])] for i in range(k - accepted - 1)]
        return [*right, wrong, *rest]
