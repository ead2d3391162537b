"""Plugin: it needs no other plugin."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import read_report

SOURCE = """
@a_case("a.b.c", cells=lambda profile: [Cell(model="gdn")])
def test_it(cell, witness):
    '''It holds.'''
    witness.add(compared=1)
    assert cell.model == "qsa"
"""


def test_a_run_without_other_plugins_is_reported(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    run_cases: Callable[..., pytest.RunResult],
) -> None:
    """Without xdist, strict markers included, the report is written and its command has no -n."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    run_cases(SOURCE, "--strict-markers", subprocess=True)
    (result,) = read_report(pytester.path / "out" / "report.jsonl").results
    assert result.failure is not None
    assert result.failure.command == (
        "python -m pytest 'test_cases.py::test_it[gdn]' --profile default"
    )
