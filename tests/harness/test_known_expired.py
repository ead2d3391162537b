"""Known failures: after the last day of an entry."""

import datetime

import pytest

from mtp_conformance.known import judge, read_known
from mtp_conformance.known_run import STALE
from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import Run, entry

LAST = datetime.date(2026, 12, 31)


def test_expired_entry(known_run: Run) -> None:
    """A cell whose entry has expired stays a fail; the note names day and owner."""
    result = known_run(entry(expires="2020-02-29", params={"k": 1}))
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*known failure that expired on 2020-02-29, owner somebody*"])
    failed = known_run.results()[1]
    assert failed.verdict is Verdict.FAIL
    assert "expired on 2020-02-29, owner somebody" in (failed.reason or "")


@pytest.mark.parametrize(("days", "verdict"), [(0, Verdict.XFAIL), (1, Verdict.FAIL)])
def test_last_day_counts(
    tmp_path_factory: pytest.TempPathFactory, days: int, verdict: Verdict
) -> None:
    """An entry counts on its last day, and not on the day after."""
    file = tmp_path_factory.mktemp("known") / "known.toml"
    file.write_text(entry(expires=LAST))
    today = LAST + datetime.timedelta(days)
    judged = judge(read_known([file]), Verdict.FAIL, "AssertionError: 1 of 2 differ", today)
    assert judged.verdict is verdict


def test_expired_entry_of_unsupported_cells(
    known_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that has expired fails the run whatever its cells came to, and is named."""
    monkeypatch.setattr(
        "tests.harness.known_failures.FAILS",
        """
@a_case("rewind.state.broken", cells=lambda profile: [Cell("gdn", k=1)])
def test_broken(cell, witness):
    "It holds."
    raise Unsupported("not offered")
""",
    )
    result = known_run(entry(expires="2020-02-29"))
    result.stdout.fnmatch_lines(["expired on 2020-02-29, owner somebody: rewind.state.broken*"])
    assert result.ret == STALE
