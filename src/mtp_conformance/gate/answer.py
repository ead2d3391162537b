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
    return Outcome(Answer.LOSSLESS, _lossless(judged) + _but(results))


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


def place_of(result: Result) -> tuple[str, int]:
    """Prompt and index of the token at which a stream leaves K=0's."""
    index = None if result.failure is None else result.failure.index
    return str(result.params["prompt"]), index[0] if index else -1


def _ties(ties: Sequence[Result], streams: Sequence[Result]) -> str:
    failures = [result.failure for result in ties if result.failure is not None]
    margin = max((abs(f.margin or 0.0) for f in failures), default=0.0)
    ulps = max((f.ulp or 0 for f in failures), default=0)
    places = len({place_of(result) for result in ties})
    return (
        f"{len(ties)} of {len(streams)} streams leave K=0's, at {places} "
        f"place{'s' * (places != 1)}, each where two logits are proven to tie: at most {margin:g} "
        f"({ulps} ULP) apart"
    )


def _nothing(streams: Sequence[Result]) -> str:
    reasons = [result.reason for result in streams if result.reason]
    return f"no stream was compared: {reasons[0]}" if reasons else "no stream was compared"


def _but(results: Sequence[Result]) -> str:
    """What a reader has to know where a pass is not row-exact."""
    rows = [result for result in results if result.case.startswith("control.rows.")]
    if any(result.verdict is Verdict.INCONCLUSIVE for result in rows):
        return "; a pass is not row-exact here, so that other text may meet a near-tie"
    return ""


def _lossless(results: Sequence[Result]) -> str:
    passed = [result for result in results if result.verdict is Verdict.PASS]
    tokens = sum(r.witness.get("compared", 0) for r in passed if r.case.startswith("stream."))
    states = [r for r in passed if r.case.startswith("rewind.")]
    arrays = sum(r.witness.get("compared", 0) for r in states)
    said = f"{tokens:,} tokens with drafts are those of K=0"
    if not states:
        return f"{said}; the runtime shows no state, so nothing is known of it"
    return f"{said}, and {arrays:,} arrays of its state are, to the bit, as if none had been wrong"
