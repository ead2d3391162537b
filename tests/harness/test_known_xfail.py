"""Known failures: listed, and failing as the list says."""

from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import Run, entry

BOTH = entry() + entry(message="AssertionError: 2 of 2", params={"k": 2})


def test_listed_and_failing(known_run: Run) -> None:
    """A listed cell that fails with its message is an xfail, and the run passes."""
    result = known_run(BOTH)
    result.assert_outcomes(xfailed=2)
    assert result.ret == 0
    assert known_run.verdicts() == {1: Verdict.XFAIL, 2: Verdict.XFAIL}


def test_reason_and_address(known_run: Run) -> None:
    """An xfail says why it fails and where that is being dealt with, and is no failure."""
    known_run(BOTH)
    result = known_run.results()[1]
    assert result.reason == "known failure: It is being dealt with. (https://example.org/1)"
    assert result.failure is not None
    assert result.failure.message.startswith("AssertionError: ")  # how it fails, for readers


def test_other_cells_still_fail(known_run: Run) -> None:
    """An entry with parameters excuses the cells that have them, and no other."""
    result = known_run(entry(params={"model": "gdn", "k": 1}))
    result.assert_outcomes(xfailed=1, failed=1)
    assert known_run.verdicts() == {1: Verdict.XFAIL, 2: Verdict.FAIL}


def test_in_workers(known_run: Run) -> None:
    """Under xdist a list means the same."""
    result = known_run(BOTH, "-n", "2", subprocess=True)
    result.assert_outcomes(xfailed=2)
    assert result.ret == 0
    assert known_run.verdicts() == {1: Verdict.XFAIL, 2: Verdict.XFAIL}
