"""The answer of a gate in one word, by the results of what is required."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from mtp_conformance.case import Case, Level, params_id
from mtp_conformance.report import Failure, Result
from mtp_conformance.verdict import Verdict


class Answer(str, Enum):
    """Whether decoding with drafts can be trusted here."""

    LOSSLESS = "lossless"
    NEAR_TIES = "near-ties only"
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"


EXIT = {Answer.LOSSLESS: 0, Answer.BROKEN: 1, Answer.NEAR_TIES: 3, Answer.INCONCLUSIVE: 3}
"""Exit codes; 2 is for a folder, file or option that cannot be used."""
_BAD = (Verdict.FAIL, Verdict.ERROR)


@dataclass(frozen=True)
class Outcome:
    """An answer, and the sentence it stands for."""

    answer: Answer
    because: str


def answer(cases: Iterable[Case], results: Sequence[Result]) -> Outcome:
    """What the results come to."""
    required = {case.id for case in cases if case.level is Level.MUST}
    judged = [result for result in results if result.case in required]
    broken = [result for result in judged if result.verdict in _BAD]
    open_ = [result for result in judged if result.verdict is Verdict.INCONCLUSIVE]
    ties = [result for result in judged if result.verdict is Verdict.NEAR_TIE]
    streams = [result for result in judged if result.case.startswith("stream.")]
    if broken:
        return Outcome(Answer.BROKEN, _broken(broken))
    if open_:
        return Outcome(Answer.INCONCLUSIVE, open_[0].reason or "nothing was proven")
    if ties:
        return Outcome(Answer.NEAR_TIES, _ties(ties, streams))
    if not any(result.verdict is Verdict.PASS for result in streams):
        return Outcome(Answer.INCONCLUSIVE, _nothing(streams))
    return Outcome(Answer.LOSSLESS, _lossless(judged))


def _broken(results: Sequence[Result]) -> str:
    """The failure that says most: one with a layer before one without."""
    first = min(results, key=lambda r: (_layer(r) is None, r.verdict is Verdict.ERROR))
    failure = first.failure or Failure(message=first.reason or "", command="")
    where = {"layer": failure.layer, "component": failure.component, "round": failure.round}
    said = [f"{name} {value}" for name, value in where.items() if value not in (None, "")]
    place = f"{', '.join(said)}; " if said else ""
    return f"{place}{first.case} [{params_id(first.params)}]: {failure.message}"


def _layer(result: Result) -> str | None:
    return None if result.failure is None else result.failure.layer


def _ties(ties: Sequence[Result], streams: Sequence[Result]) -> str:
    margins = [abs(r.failure.margin or 0.0) for r in ties if r.failure is not None]
    return (
        f"{len(ties)} of {len(streams)} streams leave K=0's, each where two logits are proven to "
        f"tie, at most {max(margins, default=0.0):g} apart"
    )


def _nothing(streams: Sequence[Result]) -> str:
    reasons = [result.reason for result in streams if result.reason]
    return f"no stream was compared: {reasons[0]}" if reasons else "no stream was compared"


def _lossless(results: Sequence[Result]) -> str:
    passed = [result for result in results if result.verdict is Verdict.PASS]
    tokens = sum(r.witness.get("compared", 0) for r in passed if r.case.startswith("stream."))
    states = [r for r in passed if r.case.startswith("rewind.")]
    arrays = sum(r.witness.get("compared", 0) for r in states)
    said = f"{tokens:,} tokens with drafts are those of K=0"
    if not states:
        return f"{said}; the runtime shows no state, so nothing is known of it"
    return f"{said}, and {arrays:,} arrays of its state are, to the bit, as if none had been wrong"
