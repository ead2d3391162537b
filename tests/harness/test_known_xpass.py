"""Known failures: listed, but passing."""

from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import Run, entry


def test_listed_but_passing(known_run: Run) -> None:
    """A listed cell that passes is an xpass, makes the run fail, and names the entry to remove."""
    result = known_run(entry(params={"k": 1}), "-k", "k1", fixed=1)
    result.assert_outcomes(failed=1, deselected=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*xpass: passes, but is listed*known.toml: known 1*"])


def test_verdict_in_report(known_run: Run) -> None:
    """The report has the xpass beside the cells that are not listed."""
    known_run(entry(params={"k": 1}), fixed=1)
    assert known_run.verdicts() == {1: Verdict.XPASS, 2: Verdict.FAIL}
