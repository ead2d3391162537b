"""Known failures: a cell that ends in an error."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import Report
from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import entry

BROKEN = """
@pytest.fixture
def runtime():
    raise KeyError("lost")

@pytest.fixture
def sticky():
    yield
    raise KeyError("lost")

@a_case("rewind.state.broken")
def test_broken(witness{fixture}):
    "It holds."
    witness.add(compared=1)
    {body}
"""

BODIES = {
    "call": ("", "raise KeyError('lost')", Verdict.XFAIL),
    "setup": (", runtime", "pass", Verdict.XFAIL),
    "teardown": (", sticky", "raise KeyError('lost')", Verdict.ERROR),
}


@pytest.mark.parametrize(("fixture", "body", "verdict"), BODIES.values(), ids=BODIES)
def test_error(
    pytester: pytest.Pytester,
    report_of: Callable[..., Report],
    fixture: str,
    body: str,
    verdict: Verdict,
) -> None:
    """A known error of setup or call is an xfail; one of a teardown stays an error."""
    (pytester.path / "known.toml").write_text(entry(message="KeyError: 'lost'"))
    report = report_of(BROKEN.format(fixture=fixture, body=body), "--known", "known.toml")
    (result,) = report.results
    assert result.verdict is verdict
