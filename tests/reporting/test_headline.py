"""Headline: what does not pass, and whether it was required."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import Report, Result
from mtp_conformance.reporting.naming import missing_of
from mtp_conformance.verdict import Verdict

MUST, SHOULD = "rewind.recurrent.reject-all", "stream.greedy.own-drafts"


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ([], ""),
        ([MUST], "; 1 required does not"),
        ([SHOULD, SHOULD], "; 2 recommended do not"),
        ([SHOULD, MUST], "; 1 required and 1 recommended do not"),
    ],
)
def test_required_and_recommended_are_told_apart(
    make_report: Callable[..., Report], cases: list[str], words: str
) -> None:
    """A recommended case that fails is not mistaken for a required one."""
    failing = [Result(case, {"k": k}, Verdict.FAIL, 0.1) for k, case in enumerate(cases)]
    passing = Result(MUST, {}, Verdict.PASS, 0.1)
    assert missing_of(make_report(passing, *failing)) == words
