"""A group that makes expected values anew instead of keeping them.

The zoo's caches are kilobytes, so its groups keep every state of a K=0 run. A real model's are a
good part of a gigabyte. Here one session stands where K=0 was last looked at: looking further on
moves it, looking back starts it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from mtp_conformance.checked import CheckedRuntime, CheckedSession
from mtp_conformance.group import Group, GroupKey, State
from mtp_conformance.oracles import NotDeterministic
from mtp_conformance.protocol import Capability, Options, Outcome


class FrugalGroup(Group):
    """A prompt with the prefill it shares, one K=0 session, and the tokens of K=0."""

    def __init__(
        self, runtime: CheckedRuntime, checkpoint: Path, key: GroupKey, prompt: Sequence[int]
    ) -> None:
        self._at = 0
        super().__init__(runtime, checkpoint, key, prompt)
        self._first = self._row = self._logits.pop()

    def _note_state(self) -> None:
        """Keep none."""

    def _advance(self, rounds: int) -> None:
        if not self.runtime.offers(Capability.DRAFTS):
            self._generate_plainly(rounds + 1)
        elif len(self._stream) <= rounds:
            self._seek(rounds)

    def _seek(self, rounds: int) -> None:
        """Bring the K=0 session to where it is after so many rounds."""
        if rounds < self._at:
            self._plain, self._at, self._row = self._base.fork(), 0, self._first
        while self._at < rounds:
            outcome = self._plain.round(())
            self._at += 1
            self._row = outcome.logits
            known = self._stream[self._at : self._at + 1]
            if known and tuple(known) != outcome.tokens:
                raise NotDeterministic(
                    f"K=0 run again emits {outcome.tokens[0]} as token {self._at}, where it "
                    f"emitted {known[0]} before"
                )
            self._stream += () if known else outcome.tokens

    def plain_logits(self, index: int) -> mx.array:
        """See `Group`."""
        self._seek(index)
        assert self._row is not None
        return self._row

    def plain_state(self, rounds: int) -> State:
        """See `Group`."""
        self._seek(rounds)
        return self._plain.state()

    def direct_state(self, rounds: int) -> State:
        """See `Group`."""
        session = self.open(Options())
        session.prefill([*self.prompt, *self.stream(rounds)])
        return session.state()

    def rewound(self, strategy: str, k: int, accepted: int) -> tuple[CheckedSession, Outcome]:
        """See `Group`; nothing is kept."""
        session = self.prefilled(Options(strategy=strategy))
        return session, session.round(self.drafts(1, k, accepted))

    def _twin(self, rounds: tuple[tuple[int, ...], ...]) -> tuple[CheckedSession, State]:
        session = self._base.fork()
        for drafts in rounds:
            session.round(drafts)
        return session, session.state()
