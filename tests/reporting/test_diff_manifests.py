"""Comparison: reports of two manifests do not compare by themselves."""

from dataclasses import replace

import pytest

from mtp_conformance.report import Report, manifest_hash
from mtp_conformance.reporting.diff import ManifestsDiffer, diff


def _with_cases(report: Report, *cases: object) -> Report:
    of_report = tuple(case for case in report.cases if case in cases)
    header = replace(report.header, manifest=manifest_hash(of_report))
    return replace(report, cases=of_report, header=header)


def test_unequal_manifests_are_refused_by_name(report: Report) -> None:
    """The message has both hashes, the cases of one side only and those that changed."""
    state, advice = report.cases
    changed = replace(state, clause="another")
    new = replace(
        report,
        cases=(changed,),
        header=replace(report.header, manifest=manifest_hash([changed])),
    )
    with pytest.raises(ManifestsDiffer) as raised:
        diff(report, new)
    message = str(raised.value)
    assert report.header.manifest in message
    assert new.header.manifest in message
    assert f"only in the old one: {advice.id}; changed: {state.id}." in message
    assert "--allow-manifest-change" in message


def test_a_case_of_the_new_report_is_named(report: Report) -> None:
    """A case that was added is only in the new one."""
    old = _with_cases(report, report.cases[0])
    with pytest.raises(ManifestsDiffer, match=f"only in the new one: {report.cases[1].id}"):
        diff(old, report)


def test_a_change_can_be_allowed(report: Report) -> None:
    """What both have is compared."""
    old = _with_cases(report, report.cases[0])
    assert diff(old, report, allow_manifest_change=True).same == len(report.results)
