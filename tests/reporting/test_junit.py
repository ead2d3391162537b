"""JUnit: how a CI system sees each verdict."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from mtp_conformance.report import Failure, Report, Result
from mtp_conformance.reporting import junit
from mtp_conformance.verdict import Verdict

TOLD = {
    Verdict.PASS: (None, None),
    Verdict.FAIL: ("failure", "fail"),
    Verdict.XPASS: ("failure", "xpass"),
    Verdict.NEAR_TIE: ("failure", "near-tie"),
    Verdict.ERROR: ("error", "error"),
    Verdict.INCONCLUSIVE: ("error", "inconclusive"),
    Verdict.UNSUPPORTED: ("skipped", None),
    Verdict.XFAIL: ("skipped", None),
}


@pytest.mark.parametrize("verdict", Verdict)
def test_only_a_pass_is_a_passing_test(report: Report, verdict: Verdict) -> None:
    """Every other verdict is a failure, an error or a skip, named case[cell]."""
    (result,) = [result for result in report.results if result.verdict is verdict]
    root = ET.fromstring(junit.render(report))
    name = f"rewind.recurrent.reject-all[gdn-k{result.params['k']}]"
    (test,) = root.findall(f"testsuite[@name='rewind']/testcase[@name='{name}']")
    told = [(child.tag, child.get("type")) for child in test] or [(None, None)]
    assert told == [TOLD[verdict]]


def test_a_near_tie_of_a_recommendation_is_skipped(make_report: Callable[..., Report]) -> None:
    """Where nothing is required, a near-tie does not fail the job, and says what it is."""
    advice = Result("stream.greedy.own-drafts", {}, Verdict.NEAR_TIE, 0.1, reason="they tie")
    (skipped,) = ET.fromstring(junit.render(make_report(advice))).iter("skipped")
    assert skipped.get("message") == "near-tie: they tie"


def test_suites_count_what_they_hold(report: Report) -> None:
    """Tests, failures, errors and skips add up, in the suite and in all."""
    root = ET.fromstring(junit.render(report))
    for element in (root, *root):
        counted = [element.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert counted == ["8", "3", "2", "2"]


def test_any_text_makes_well_formed_xml(
    make_report: Callable[..., Report], failure: Failure
) -> None:
    """Tags, controls and halves of surrogate pairs are text, or spelled out."""
    hostile = replace(failure, message="</failure>&<b>\x00\x1b\ud800\n\uffff")
    result = Result("stream.greedy.own-drafts", {"m": "\x08"}, Verdict.FAIL, 0.1, {}, hostile)
    (told,) = ET.fromstring(junit.render(make_report(result)).encode()).iter("failure")
    assert told.get("message") == r"fail: </failure>&<b>\x00\x1b\ud800"
    assert failure.command in (told.text or "")
