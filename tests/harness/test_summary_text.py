"""Summary: what a run looks like in a terminal and in a log."""

from pathlib import Path

from mtp_conformance.report import Failure, Result
from mtp_conformance.summary import render
from mtp_conformance.verdict import Verdict

FAILURE = Failure(
    message="after round 2: layers.1 conv differs\nmore",
    command=f"python -m pytest 'test_x.py::test_it[{'x' * 120}]' --profile default -n 0",
    layer="layers.1",
    component="conv",
    round=2,
)


def _results(failures: int = 1) -> list[Result]:
    witness = {"drafted": 1000, "rejected": 2, "compared": 3}
    gdn = {"model": "gdn"}
    return [
        Result("rewind.conv.a", {**gdn, "k": 1}, Verdict.PASS, 0.1, witness),
        Result("rewind.conv.a", {**gdn, "k": 2}, Verdict.UNSUPPORTED, 0.1, reason="no fork"),
        *(
            Result("rewind.conv.b", {**gdn, "k": k}, Verdict.FAIL, 0.1, {}, FAILURE)
            for k in range(failures)
        ),
    ]


def _plain(results: list[Result], profile: str = "default") -> str:
    report = Path("out/report.jsonl")
    return render(results, seconds=41.23, profile=profile, report=report, colour=False, width=100)


def test_a_log_gets_plain_lines() -> None:
    """Counts, totals, engagement, time, report and the failure with its command are plain text."""
    text = _plain(_results())
    assert "\x1b" not in text
    for words in (
        "| gdn   | 1/2 +1 unsupported |",
        "verdicts: 1 pass, 1 fail, 1 unsupported",
        "engagement: 1,000 drafted, 0 accepted, 2 rejected, 3 arrays compared",
        "finished in 41.2 s, within the 90 s meant for default on two cores",
        "report: out/report.jsonl",
        "fail: rewind.conv.b [gdn-k0]",
        "round 2, layer layers.1, component conv",
        "  after round 2: layers.1 conv differs\n",
        f"  {FAILURE.command}\n",
    ):
        assert words in text


def test_a_profile_without_budget_shows_the_time_alone() -> None:
    """Only profiles with a budget name one."""
    assert "finished in 41.2 s\n" in _plain(_results(), "full")


def test_only_the_first_failures_are_shown() -> None:
    """Five failures are shown and the others counted."""
    text = _plain(_results(failures=7))
    assert text.count("fail: ") == 5
    assert text.endswith("\nand 2 more\n")


def test_a_terminal_gets_failing_counts_in_red() -> None:
    """In colour, a count that is not full is bold red."""
    text = render(_results(), seconds=1.0, profile="default", report=None, colour=True, width=100)
    assert "\x1b[1;31m1/2\x1b[0m" in text
