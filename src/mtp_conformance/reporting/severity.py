"""Which verdict is worse, and what each one is called: one order for pages, badge and comparison.

A page, a badge or a cell of a matrix that stands for many results takes the worst of their
verdicts, so nothing that happened is hidden by the number of passes beside it.
"""

from collections.abc import Iterable

from mtp_conformance.report import Result
from mtp_conformance.verdict import Verdict

FROM_BEST = (
    Verdict.PASS,
    Verdict.UNSUPPORTED,
    Verdict.XFAIL,
    Verdict.NEAR_TIE,
    Verdict.INCONCLUSIVE,
    Verdict.XPASS,
    Verdict.ERROR,
    Verdict.FAIL,
)

# What tells verdicts apart where colour cannot.
LETTERS = {
    Verdict.PASS: "P",
    Verdict.FAIL: "F",
    Verdict.ERROR: "E",
    Verdict.UNSUPPORTED: "U",
    Verdict.INCONCLUSIVE: "I",
    Verdict.NEAR_TIE: "N",
    Verdict.XFAIL: "K",
    Verdict.XPASS: "X",
}

MEANINGS = {
    Verdict.PASS: "the required property holds, and its witness was met",
    Verdict.FAIL: "the required property does not hold",
    Verdict.ERROR: "the runtime or the suite broke before a verdict was possible",
    Verdict.UNSUPPORTED: "the runtime lacks a capability the case needs; counted, never a pass",
    Verdict.INCONCLUSIVE: "what the case is about, such as a rejection, did not happen",
    Verdict.NEAR_TIE: "the streams part where two logits are proven to tie; never a pass",
    Verdict.XFAIL: "listed as a known failure, and it fails",
    Verdict.XPASS: "listed as a known failure, but it passes",
}

HEADLINES = {
    Verdict.PASS: "Everything passes",
    Verdict.UNSUPPORTED: "No failure, but not everything is supported",
    Verdict.XFAIL: "Known failures only",
    Verdict.NEAR_TIE: "Near-ties",
    Verdict.INCONCLUSIVE: "Inconclusive",
    Verdict.XPASS: "A known failure passes",
    Verdict.ERROR: "Errors",
    Verdict.FAIL: "Failures",
}


def severity(verdict: Verdict) -> int:
    """How bad a verdict is, from 0 for a pass."""
    return FROM_BEST.index(verdict)


def reading_order(result: Result) -> tuple[int, float, tuple[str, str]]:
    """A key that sorts the worst first, and of those what went wrong in the earliest round."""
    failure = result.failure
    round = None if failure is None else failure.round
    return -severity(result.verdict), float("inf") if round is None else round, result.key


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts. Raises ValueError where there is none."""
    return max(verdicts, key=severity)
