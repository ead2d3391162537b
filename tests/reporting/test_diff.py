"""Comparison: which way a verdict went."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from mtp_conformance.report import Failure, Report, Result
from mtp_conformance.reporting.diff import diff, render_json, render_text
from mtp_conformance.verdict import Verdict

MakeReport = Callable[..., Report]
DIRECTIONS = {
    "fixed": (Verdict.FAIL, Verdict.PASS, "fixed", False),
    "supported-now": (Verdict.UNSUPPORTED, Verdict.PASS, "fixed", False),
    "broken": (Verdict.PASS, Verdict.FAIL, "broken", True),
    "unsupported-now": (Verdict.PASS, Verdict.UNSUPPORTED, "broken", True),
    "near-tie-now": (Verdict.PASS, Verdict.NEAR_TIE, "broken", True),
    "known-now": (Verdict.FAIL, Verdict.XFAIL, "other", False),
    "worse": (Verdict.NEAR_TIE, Verdict.FAIL, "other", True),
}


def _result(verdict: Verdict, k: int = 1, failure: Failure | None = None) -> Result:
    return Result("stream.greedy.own-drafts", {"model": "gdn", "k": k}, verdict, 0.1, {}, failure)


@pytest.mark.parametrize(
    ("before", "after", "group", "worse"), DIRECTIONS.values(), ids=DIRECTIONS.keys()
)
def test_a_change_has_a_direction(
    make_report: MakeReport, before: Verdict, after: Verdict, group: str, worse: bool
) -> None:
    """Towards pass is fixed, away from pass is broken, and farther from pass is worse."""
    found = diff(make_report(_result(before)), make_report(_result(after)))
    changed = {name: getattr(found, name) for name in ("fixed", "broken", "other")}
    assert [name for name, changes in changed.items() if changes] == [group]
    assert found.worse is worse


def test_no_change_is_no_difference(report: Report) -> None:
    """A report compared with itself has nothing but results as before."""
    found = diff(report, report)
    assert (found.same, found.worse) == (len(report.results), False)
    assert render_text(found).splitlines() == [
        "not worse: 0 fixed, 0 broken, 0 changed otherwise, 0 added, 0 removed, 8 as before"
    ]


def test_a_result_that_is_gone_is_worse(make_report: MakeReport) -> None:
    """Judging less is worse; judging more is not, whatever it finds."""
    one, two = make_report(_result(Verdict.PASS)), [_result(Verdict.PASS), _result(Verdict.FAIL, 2)]
    gained, lost = diff(one, make_report(*two)), diff(make_report(*two), one)
    assert (len(gained.added), gained.worse) == (1, False)
    assert (len(lost.removed), lost.worse) == (1, True)


def test_a_result_of_a_case_that_is_gone_is_not_worse(make_report: MakeReport) -> None:
    """Where a change of the manifest is allowed, its removed cases are removed, not lost."""
    old = make_report(_result(Verdict.PASS), replace(_result(Verdict.PASS), params={"k": 5}))
    new = replace(old, cases=old.cases[:1], header=replace(old.header, manifest="other"))
    new = replace(new, results=(replace(old.results[0], case=old.cases[0].id),))
    found = diff(old, new, allow_manifest_change=True)
    assert (len(found.removed), len(found.lost), found.worse) == (2, 0, False)


def test_the_text_names_what_got_worse_first(make_report: MakeReport, failure: Failure) -> None:
    """A broken result comes with its message and command, before what was fixed."""
    old = make_report(_result(Verdict.PASS), _result(Verdict.FAIL, 2, failure))
    new = make_report(_result(Verdict.FAIL, 1, failure), _result(Verdict.PASS, 2))
    assert render_text(diff(old, new)).splitlines() == [
        "broken: stream.greedy.own-drafts[gdn-k1]: pass → fail",
        f"  {failure.message}",
        f"  {failure.command}",
        "fixed: stream.greedy.own-drafts[gdn-k2]: fail → pass",
        "worse: 1 fixed, 1 broken, 0 changed otherwise, 0 added, 0 removed, 0 as before",
    ]


def test_the_json_names_the_same(make_report: MakeReport) -> None:
    """A machine reads case, parameters and both verdicts."""
    found = diff(make_report(_result(Verdict.PASS)), make_report(_result(Verdict.ERROR)))
    record = json.loads(render_json(found))
    assert record["worse"] is True
    assert record["broken"] == [
        {
            "case": "stream.greedy.own-drafts",
            "params": {"model": "gdn", "k": 1},
            "before": "pass",
            "after": "error",
            "worse": True,
        }
    ]
