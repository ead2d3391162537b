"""What a cell is compared with, computed once and shared.

A group is one model, data type and prompt. Its prefill is run once and forked; the K=0 run,
the runs that were never given a rejected draft, and direct forward passes over a whole
committed sequence are kept for the cells that share them. All of them come from the runtime
under judgement, by ways that never rewind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx

from mtp_conformance.case import Cell
from mtp_conformance.exactness import require_equal
from mtp_conformance.protocol import Capability, Options, Outcome, Runtime, RuntimeSession
from mtp_conformance.tokens import require_tokens
from mtp_conformance.verdict import Unsupported

State = dict[str, mx.array]
EOS = 256
TIE_FREE_GAP = 1e-3
"""Scores at the cut further apart than this are no tie in any of the data types used."""
_TIE_FREE_TOKENS = 16
_GROUPS_KEPT = 4
_REJECTED_TAIL = (EOS, 101, 32, EOS, 116, 10, 97)


def target_arrays(state: Mapping[str, mx.array]) -> State:
    """The arrays of the target's caches, without the head's."""
    return {name: array for name, array in state.items() if not name.startswith("head.")}


class GroupKey(NamedTuple):
    """What a group is of: model, data type, prompt length and where in the text it starts."""

    model: str
    dtype: str
    prompt_length: int
    start: int = 0


class Group:
    """One model, data type and prompt, with everything its cells share."""

    def __init__(
        self, runtime: Runtime, checkpoint: Path, key: GroupKey, prompt: list[int]
    ) -> None:
        self._runtime = runtime
        self._checkpoint = checkpoint
        self.key = key
        self.prompt = prompt
        self._base = self.open(Options())
        first = self._base.prefill(prompt)
        self._plain = self._base.fork()
        self._stream = list(first.tokens)
        self._logits = [first.logits]
        self._states = [self._plain.state()]
        self._never_rejected: dict[tuple[tuple[int, ...], ...], tuple[RuntimeSession, State]] = {}
        self._direct: dict[int, State] = {}
        self._last_round: tuple[tuple[str, int, int], tuple[RuntimeSession, Outcome]] | None = None

    def open(self, options: Options) -> RuntimeSession:
        """A session of this model that has seen nothing."""
        return self._runtime.open(self.key.model, self._checkpoint, options)

    def prefilled(self, options: Options) -> RuntimeSession:
        """An independent session that has seen the prompt."""
        return self._base.fork(options)

    def _advance(self, rounds: int) -> None:
        while len(self._states) <= rounds:
            outcome = self._plain.round(())
            self._stream += outcome.tokens
            self._logits.append(outcome.logits)
            self._states.append(self._plain.state())

    def stream(self, length: int) -> list[int]:
        """The first tokens K=0 emits; token 0 comes from the prefill."""
        self._advance(length - 1)
        return self._stream[:length]

    def plain_logits(self, index: int) -> mx.array:
        """Logits [1, V] from which K=0 chose token `index`."""
        self._advance(index)
        return self._logits[index]

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

    def _twin(self, rounds: tuple[tuple[int, ...], ...]) -> tuple[RuntimeSession, State]:
        if rounds not in self._never_rejected:
            session = self._twin(rounds[:-1])[0].fork() if rounds else self._base.fork()
            if rounds:
                session.round(rounds[-1])
            self._never_rejected[rounds] = session, session.state()
        return self._never_rejected[rounds]

    def rewound(self, strategy: str, k: int, accepted: int) -> tuple[RuntimeSession, Outcome]:
        """A session after one round with a reject, and what the round gave; fork it to go on.

        The last one is kept, for the cases that look at the same round.
        """
        key = (strategy, k, accepted)
        if self._last_round is None or self._last_round[0] != key:
            session = self.prefilled(Options(strategy=strategy))
            self._last_round = key, (session, session.round(self.drafts(1, k, accepted)))
        return self._last_round[1]

    def drafts(self, emitted: int, k: int, accepted: int) -> list[int]:
        """K drafts of which exactly the first `accepted` are what K=0 emits.

        Args:
            emitted: tokens emitted so far, the prefill's included.
            k: number of drafts.
            accepted: how many are right; the next one is certainly wrong, and the rest hold
                an end of text and other tokens that would disturb every state.
        """
        stream = self.stream(emitted + accepted + 1)
        right = stream[emitted : emitted + accepted]
        if accepted == k:
            return right
        wrong = (stream[emitted + accepted] + 1) % EOS
        tail = [_REJECTED_TAIL[i % len(_REJECTED_TAIL)] for i in range(k - accepted - 1)]
        return [*right, wrong, *tail]


class Oracles:
    """Groups by model, data type and prompt; the last few are kept.

    Args:
        runtime: what is judged.
        folder: where checkpoints are written.
        prompt: tokens that prompts are stretches of.
        index_gap: from (checkpoint, prompt, new tokens) to the smallest distance between index
            scores at the selection cut; infinite for a model without such an index.
    """

    def __init__(
        self,
        runtime: Runtime,
        folder: Path,
        prompt: Sequence[int],
        index_gap: Callable[[Path, Sequence[int], int], float],
    ) -> None:
        self.runtime = runtime
        self.description = runtime.describe()
        self._folder = folder
        self._prompt = list(prompt)
        self._index_gap = index_gap
        self._groups: OrderedDict[GroupKey, Group] = OrderedDict()
        self._deterministic: set[tuple[str | None, str | None]] = set()
        self._tie_free: dict[GroupKey, int] = {}

    def need(self, *capabilities: Capability) -> None:
        """Refuse a case the runtime does not offer enough for.

        Raises:
            Unsupported: names what is missing.
        """
        missing = [c.value for c in capabilities if c not in self.description.capabilities]
        if missing:
            raise Unsupported(f"{self.description.name} does not offer {', '.join(missing)}")

    def group(self, cell: Cell, *, tie_free: bool = False) -> Group:
        """The group of a cell; the model's determinism control comes first.

        Args:
            cell: model, data type and prompt length.
            tie_free: take a stretch of text in which no index score comes close to another
                at the selection cut, so that no verdict hangs on how ties are broken.

        Raises:
            Unsupported: the runtime cannot open the model.
            NotDeterministic: K=0 twice gave two results.
        """
        if cell.model not in self.description.models:
            raise Unsupported(f"{self.description.name} cannot open {cell.model}")
        if (cell.model, cell.dtype) not in self._deterministic:
            try:
                self.check_determinism(cell)
            except AssertionError as error:
                raise NotDeterministic(f"K=0 run twice gives two results: {error}") from error
            self._deterministic.add((cell.model, cell.dtype))
        key = _key(cell)
        return self._find(key._replace(start=self._tie_free_start(key)) if tie_free else key)

    def _find(self, key: GroupKey) -> Group:
        if key not in self._groups:
            self._groups[key] = self.fresh_group(key)
        self._groups.move_to_end(key)
        while len(self._groups) > _GROUPS_KEPT:
            self._groups.popitem(last=False)
        return self._groups[key]

    def fresh_group(self, key: GroupKey) -> Group:
        """A group that shares nothing with any other."""
        prompt = self._prompt[key.start : key.start + key.prompt_length]
        return Group(self.runtime, self._checkpoint(key), key, prompt)

    def _checkpoint(self, key: GroupKey) -> Path:
        return self.runtime.checkpoint(key.model, key.dtype, self._folder)

    def _tie_free_start(self, key: GroupKey) -> int:
        if key not in self._tie_free:
            starts = range(len(self._prompt) - key.prompt_length)
            self._tie_free[key] = next(s for s in starts if self._gap(key, s) > TIE_FREE_GAP)
        return self._tie_free[key]

    def _gap(self, key: GroupKey, start: int) -> float:
        prompt = self._prompt[start : start + key.prompt_length]
        return self._index_gap(self._checkpoint(key), prompt, _TIE_FREE_TOKENS)

    def check_determinism(self, cell: Cell, rounds: int = 4) -> int:
        """Run K=0 twice and demand the same bits; returns the number of arrays compared.

        Raises:
            AssertionError: names the first token or array that differs.
        """
        first, second = self._find(_key(cell)), self.fresh_group(_key(cell))
        what = "a second K=0 run from the same prompt"
        require_tokens(second.stream(rounds + 1), first.stream(rounds + 1), what=what)
        compared = 0
        for n in range(rounds + 1):
            compared += require_equal(second.plain_state(n), first.plain_state(n), what=what)
            logits = {"logits": first.plain_logits(n)}
            compared += require_equal({"logits": second.plain_logits(n)}, logits, what=what)
        return compared


class NotDeterministic(Exception):
    """K=0 run twice gave two results; no verdict on K>0 means anything."""


def _key(cell: Cell) -> GroupKey:
    assert cell.model is not None and cell.dtype is not None
    assert cell.prompt_length is not None
    return GroupKey(cell.model, cell.dtype, cell.prompt_length)
