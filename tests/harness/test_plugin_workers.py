"""Plugin: workers of pytest-xdist change nothing in the report."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from mtp_conformance.report import Report

SOURCE = """
from mtp_conformance.plugin import describe_runtime

def cells(profile):
    return [Cell(model=m, k=k, dtype="float32") for m in ("gdn", "qsa") for k in (1, 2)]

@pytest.fixture(autouse=True)
def runtime(request):
    describe_runtime(request.config, {"name": "builtin", "version": "7"})

@a_case("rewind.state.a", cells=cells)
def test_rewound(cell, witness):
    '''A rewound state is equal.'''
    witness.add(compared=1)
    assert cell.k == 1

@a_case("rewind.state.b")
def test_forked(witness):
    '''A fork is independent.'''
    raise Unsupported("no fork")

def test_plain(record_property):
    record_property("a", "b")
"""


def _timeless(report: Report) -> tuple[object, ...]:
    results = [replace(result, seconds=0.0) for result in report.results]
    return replace(report.header, argv=()), report.cases, results, report.counts


def test_the_report_is_the_same_with_workers(report_of: Callable[..., Report]) -> None:
    """Two workers with grouped scheduling leave the report of a single process."""
    alone = report_of(SOURCE)
    together = report_of(SOURCE, "-n", "2", "--dist", "loadgroup")
    assert _timeless(together) == _timeless(alone)
    assert together.header.runtime["version"] == "7"


def test_a_worker_that_dies_is_an_error_of_its_case(report_of: Callable[..., Report]) -> None:
    """A case during which the process dies is recorded as an error."""
    source = '@a_case("a.b.c")\ndef test_it():\n    """It."""\n    import os; os._exit(3)\n'
    others = (
        '\n@a_case("a.b.d")\ndef test_other(witness):\n    """It."""\n    witness.add(compared=1)'
    )
    results = report_of(source + others, "-n", "1", "--dist", "load").results
    assert [result.verdict.value for result in results] == ["error", "pass"]
    assert results[0].failure is not None
    assert "crashed while running" in results[0].failure.message


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failed_collection_leaves_a_partial_report(
    pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult], workers: str
) -> None:
    """Where one file cannot be collected, the report of the others is not complete."""
    pytester.makepyfile(test_broken="raise RuntimeError")
    run_cases(SOURCE, "-n", workers)
    partial = pytester.path / "out" / "report.partial.jsonl"
    assert json.loads(partial.read_text().splitlines()[-1])["complete"] is False
