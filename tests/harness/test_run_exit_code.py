"""A run's exit code follows the verdicts of its required cases."""

import pytest

from mtp_conformance.case import Case, Level
from mtp_conformance.commands.run import exit_code
from mtp_conformance.report import Header, Report, Result
from mtp_conformance.verdict import Verdict

HEADER = Header(
    schema=1,
    suite_version="0",
    git=None,
    manifest="0",
    runtime={"name": "r"},
    mlx="0",
    mlx_lm="0",
    python="3",
    platform="p",
    device="cpu",
    profile="smoke",
    seed=None,
    argv=(),
)


def _case(level: Level) -> Case:
    return Case(f"area.property.{level}", "c", level, (), "o", "w", (), "0.1.0", "summary")


def _report(verdict: Verdict, level: Level) -> Report:
    result = Result(f"area.property.{level}", {}, verdict, 0.0, {}, None, None)
    return Report(HEADER, (_case(level),), (result,), {verdict: 1}, 1.0)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.PASS, 0),
        (Verdict.UNSUPPORTED, 3),
        (Verdict.XFAIL, 3),
        (Verdict.FAIL, 1),
        (Verdict.ERROR, 1),
        (Verdict.XPASS, 1),
        (Verdict.INCONCLUSIVE, 3),
        (Verdict.NEAR_TIE, 3),
    ],
)
def test_required_case(verdict: Verdict, code: int) -> None:
    """A required case's verdict decides; nothing passed proves nothing."""
    assert exit_code(_report(verdict, Level.MUST)) == code


@pytest.mark.parametrize("verdict", list(Verdict))
def test_recommended_case(verdict: Verdict) -> None:
    """A recommended case never fails a run, and only its pass makes one pass."""
    assert exit_code(_report(verdict, Level.SHOULD)) == (0 if verdict is Verdict.PASS else 3)
