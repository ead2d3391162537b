"""Plugin: outcomes of a case become verdicts."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import Report

BODIES = {
    "pass": "witness.add(compared=1)",
    "fail": "witness.add(compared=1); assert False",
    "inconclusive": "witness.add(compared=1); witness.require(rejected=1)",
    "unsupported": "raise Unsupported('no fork')",
    "error": "raise KeyError('lost')",
}
SPECIAL = {
    "no-comparison": ("def test_it(witness):", "pass", "inconclusive"),
    "no-witness": ("def test_it():", "pass", "inconclusive"),
    "skip": ("def test_it(witness):", "pytest.skip('later')", "error"),
    "raises-nothing": ("def test_it():", "with pytest.raises(KeyError): pass", "fail"),
    "unsupported-setup": ("def test_it(witness, unsupported):", "pass", "unsupported"),
    "broken-setup": ("def test_it(witness, unset):", "pass", "error"),
    "broken-teardown": ("def test_it(witness, sticky):", "witness.add(compared=1)", "error"),
    "failed-then-broken": ("def test_it(witness, sticky):", "assert False", "fail"),
    "xfail": ("@pytest.mark.xfail\ndef test_it(witness):", "assert False", "xfail"),
    "xpass": ("@pytest.mark.xfail\ndef test_it(witness):", "witness.add(compared=1)", "xpass"),
    "xpass-strict": (
        "@pytest.mark.xfail(strict=True)\ndef test_it(witness):",
        "witness.add(compared=1)",
        "xpass",
    ),
}
ALL = {name: ("def test_it(witness):", body, name) for name, body in BODIES.items()} | SPECIAL
FIXTURES = """
@pytest.fixture
def unset():
    assert False
@pytest.fixture
def unsupported():
    raise Unsupported('no fork')
@pytest.fixture
def sticky():
    yield
    assert False
"""


@pytest.mark.parametrize(("signature", "body", "verdict"), ALL.values(), ids=ALL.keys())
def test_an_outcome_becomes_a_verdict(
    report_of: Callable[..., Report], signature: str, body: str, verdict: str
) -> None:
    """Each way to end a case has its verdict, and the footer counts it."""
    source = f'{FIXTURES}\n@a_case("a.b.c")\n{signature}\n    """It holds."""\n    {body}\n'
    report = report_of(source)
    assert [result.verdict.value for result in report.results] == [verdict]


def test_an_unsupported_case_does_not_fail_the_run(
    run_cases: Callable[..., pytest.RunResult],
) -> None:
    """Pytest shows an unsupported case as skipped, with the reason."""
    source = '@a_case("a.b.c")\ndef test_it():\n    """It."""\n    raise Unsupported("no fork")\n'
    run = run_cases(source, "-rs")
    run.assert_outcomes(skipped=1)
    run.stdout.fnmatch_lines(["SKIPPED*test_cases.py*unsupported: no fork"])


def test_an_inconclusive_case_fails_the_run(run_cases: Callable[..., pytest.RunResult]) -> None:
    """Pytest shows a case that compared nothing as failed."""
    run = run_cases('@a_case("a.b.c")\ndef test_it(witness):\n    """It."""\n')
    run.assert_outcomes(failed=1)
    run.stdout.fnmatch_lines(["*inconclusive: proves nothing: its witness compared no array"])
