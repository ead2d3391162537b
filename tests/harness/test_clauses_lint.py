"""The suite's own cases, clauses and faults."""

from pathlib import Path

from mtp_conformance.clause_lint import lint_suite

ROOT = Path(__file__).parents[2]


def test_suite_is_in_step() -> None:
    """Every case, clause and fault of the suite belongs together."""
    assert not lint_suite(ROOT)
