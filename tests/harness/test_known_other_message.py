"""Known failures: listed, but failing in another way."""

from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import Run, entry


def test_another_message(known_run: Run) -> None:
    """A listed cell that fails with another message stays a fail and says what was expected."""
    result = known_run(entry(message="KeyError", params={"k": 1}))
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*another message: 'KeyError' of rewind.state.broken*known 1*"])
    failed = known_run.results()[1]
    assert failed.verdict is Verdict.FAIL
    assert "another message: 'KeyError'" in (failed.reason or "")


def test_message_of_the_failure_stays(known_run: Run) -> None:
    """The note does not replace the message by which the cell failed."""
    known_run(entry(message="KeyError", params={"k": 1}))
    failure = known_run.results()[1].failure
    assert failure is not None
    assert failure.message.startswith("AssertionError: 1 of 2 differ")
