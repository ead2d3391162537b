"""Plugin: tests that are no case are left alone."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import Report

PLAIN = """
def test_passes(): pass
def test_skips(): pytest.skip("no")
def test_raises(): raise Unsupported("x")
"""
CASE = """
@a_case("a.b.c")
def test_it(witness):
    '''It holds.'''
    witness.add(compared=1)
"""


def test_plain_tests_keep_their_outcomes(run_cases: Callable[..., pytest.RunResult]) -> None:
    """A plain test passes without a witness, skips, and fails on Unsupported; no summary shows."""
    run = run_cases(PLAIN)
    run.assert_outcomes(passed=1, skipped=1, failed=1)
    run.stdout.no_fnmatch_line("*MTP conformance*")


def test_plain_tests_are_not_recorded(report_of: Callable[..., Report]) -> None:
    """Beside plain tests, only the case is in the report."""
    report = report_of(PLAIN + CASE)
    assert [result.case for result in report.results] == ["a.b.c"]


def test_deselected_cases_stay_in_the_manifest(report_of: Callable[..., Report]) -> None:
    """A case that an option deselects is listed and has no result; the report is complete."""
    other = CASE.replace("a.b.c", "a.b.other").replace("test_it", "test_other")
    report = report_of(CASE + other, "-k", "test_it")
    assert [case.id for case in report.cases] == ["a.b.c", "a.b.other"]
    assert [result.case for result in report.results] == ["a.b.c"]
