"""Known failures: verdicts that they leave alone."""

import datetime
from pathlib import Path

import pytest

from mtp_conformance.known import Judged, judge, read_known
from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import entry

TODAY = datetime.date(2026, 1, 1)
UNTOUCHED = (Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE, Verdict.NEAR_TIE)


@pytest.mark.parametrize("verdict", UNTOUCHED)
def test_other_verdicts_stay(tmp_path: Path, verdict: Verdict) -> None:
    """A list excuses failures; what proved nothing, or was not offered, stays what it is."""
    (tmp_path / "known.toml").write_text(entry(message="AssertionError"))
    entries = read_known([tmp_path / "known.toml"])
    assert judge(entries, verdict, "AssertionError", TODAY) == Judged(verdict)


@pytest.mark.parametrize("verdict", Verdict)
def test_no_entry_no_say(verdict: Verdict) -> None:
    """A cell that is not listed keeps its verdict."""
    assert judge([], verdict, "AssertionError", TODAY) == Judged(verdict)
