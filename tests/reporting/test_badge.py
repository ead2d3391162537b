"""Badge: a denominator that hides nothing."""

import json
from collections.abc import Callable

import pytest

from mtp_conformance.report import Report, Result
from mtp_conformance.reporting import badge
from mtp_conformance.verdict import Verdict

COLOURS = {
    Verdict.PASS: "brightgreen",
    Verdict.UNSUPPORTED: "yellowgreen",
    Verdict.NEAR_TIE: "yellow",
    Verdict.INCONCLUSIVE: "orange",
    Verdict.ERROR: "red",
    Verdict.FAIL: "red",
}


def _results(*verdicts: Verdict) -> list[Result]:
    return [Result("stream.greedy.own-drafts", {"k": k}, v, 0.1) for k, v in enumerate(verdicts)]


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict != "pass"])
def test_every_result_counts_below_and_only_a_pass_above(
    make_report: Callable[..., Report], verdict: Verdict
) -> None:
    """One pass beside one of any other verdict is 1/2, for unsupported too."""
    results = _results(Verdict.PASS, verdict)
    assert json.loads(badge.render(make_report(*results)))["message"] == "1/2"


@pytest.mark.parametrize(("verdict", "colour"), COLOURS.items(), ids=map(str, COLOURS))
def test_the_worst_verdict_gives_the_colour(
    make_report: Callable[..., Report], verdict: Verdict, colour: str
) -> None:
    """A hundred passes do not change the colour."""
    results = _results(*[Verdict.PASS] * 100, verdict)
    assert json.loads(badge.render(make_report(*results)))["color"] == colour
