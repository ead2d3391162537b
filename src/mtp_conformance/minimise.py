"""From a failing cell to the smallest run that fails the same way.

Fewest rounds first, then fewest drafts, fewest accepted, the shortest prompt. Runs are of the
same model, data type and strategy: rounds under the state claim where the runtime shows its
state, whole streams where it does not or where no state differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from mtp_conformance.case import Cell, Witness
from mtp_conformance.claims import require_rewound
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Capability
from mtp_conformance.report import Minimal
from mtp_conformance.rounds import run_rounds
from mtp_conformance.tokens import first_difference
from mtp_conformance.verdict import Inconclusive, Unsupported

_USUAL_DEPTH = 4
_DEPTH_OF_TWO = 2
_PROMPT_LENGTHS = (1, 2, 3, 4, 5, 8, 12)
_TOKENS = 24
SECONDS = 12.0
"""Longest search for one failure."""

Rounds = tuple[tuple[int, int], ...]


def minimise(oracles: Oracles, cell: Cell) -> Minimal | None:
    """Search for the smallest failing run of a cell's model, data type and strategy.

    Returns:
        None if none was found in time, or the failure needs more than two rounds and shows in
        no stream. A minimal run without rounds is a call of `generate` with K drafts.
    """
    if cell.model is None or cell.dtype is None:
        return None
    end = time.monotonic() + SECONDS
    if oracles.runtime.offers(Capability.STATE, Capability.DRAFTS):
        for rounds in _scripts(max(_USUAL_DEPTH, cell.k or 0)):
            found = _shortest(oracles, cell, rounds, end)
            if found is not None:
                return found
    if oracles.runtime.offers(Capability.STREAM):
        for k in range(1, max(_USUAL_DEPTH, cell.k or 0) + 1):
            length = _shortest_prompt(cell, lambda small: _streams_differ(oracles, small), k, end)
            if length is not None:
                return Minimal(length, k, ())
    return None


def _scripts(deepest: int) -> Iterator[Rounds]:
    """One round of every (K, accepted), then two rounds of the shallow ones."""
    rounds = [(k, accepted) for k in range(1, deepest + 1) for accepted in range(k + 1)]
    yield from ((round_,) for round_ in rounds)
    shallow = [r for r in rounds if r[0] <= _DEPTH_OF_TWO]
    yield from product(shallow, [*shallow, (0, 0)])


def _shortest(oracles: Oracles, cell: Cell, rounds: Rounds, end: float) -> Minimal | None:
    k, accepted = rounds[0]

    def fails(small: Cell) -> bool:
        if len(rounds) == 1:
            small = replace(small, accepted=accepted)
            return _fails(lambda: require_rewound(oracles, small, Witness()))
        return _fails(lambda: run_rounds(oracles, small, rounds, Witness()))

    length = _shortest_prompt(cell, fails, k, end)
    return None if length is None else Minimal(length, max(k for k, _ in rounds), rounds)


def _shortest_prompt(cell: Cell, fails: Callable[[Cell], bool], k: int, end: float) -> int | None:
    """The shortest prompt that fails, if the cell's own does; None also once time is up."""
    own = cell.prompt_length or _PROMPT_LENGTHS[-1]

    def tried(length: int) -> bool:
        extra = tuple(axis for axis in cell.extra if axis[0].startswith(("kv_", "prompt")))
        small = replace(cell, k=k, accepted=None, prompt_length=length, extra=extra)
        return time.monotonic() < end and fails(small)

    if not tried(own):
        return None
    return next((length for length in _PROMPT_LENGTHS if length < own and tried(length)), own)


def _streams_differ(oracles: Oracles, cell: Cell) -> bool:
    """Whether the runtime's own drafts, or a guess with a wrong token, lead away from K=0."""

    def check() -> None:
        group = oracles.group(cell)
        stream = group.stream(_TOKENS)
        guesses: list[list[int] | None] = [None]
        if oracles.runtime.offers(Capability.GUESS):
            guesses.append([(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(stream)])
        for guess in guesses:
            session = group.open(oracles.options(cell))
            made = session.generate(
                group.prompt, num_draft_tokens=cell.k or 0, max_tokens=_TOKENS, guess=guess
            )
            assert first_difference(made.tokens, stream) is None

    return _fails(check)


def _fails(run: Callable[[], object]) -> bool:
    """Whether a claim fails; a runtime that fails itself proves nothing."""
    try:
        run()
    except AssertionError:
        return True
    except (RuntimeFailure, Unsupported, Inconclusive):
        return False
    return False
