"""Fixtures for the harness's tests: a registry of their own, small reports, inner pytest runs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mtp_conformance
from mtp_conformance.case import Case, Level
from mtp_conformance.report import Header, Report, ReportWriter, Result, manifest_hash, read_report
from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import Run

CASE = """
import mlx.core as mx
import pytest
from mtp_conformance import *

def a_case(id, **options):
    return case(id, clause="c", oracle="A", witness="w", since="0.1.0", **options)

"""


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cases that tests declare out of each other's way."""
    # By module name: the package's attribute `case` is the decorator.
    monkeypatch.setattr(sys.modules["mtp_conformance.case"], "_registry", {})


@pytest.fixture
def known_case() -> Case:
    """Return a case as a report holds it."""
    return Case(
        id="rewind.recurrent.reject-all",
        clause="rewind-1",
        level=Level.MUST,
        needs=("state",),
        oracle="A",
        witness="at least one reject",
        faults=("R1",),
        since="0.1.0",
        summary="A rejected draft leaves no trace.",
    )


@pytest.fixture
def header(known_case: Case) -> Header:
    """Return a header of a run of that one case."""
    return Header(
        suite_version="0.1.0",
        git=None,
        manifest=manifest_hash([known_case]),
        runtime={"name": "builtin"},
        mlx="0.32.4",
        mlx_lm=None,
        python="3.11.7",
        platform="linux-x86_64",
        device="cpu",
        profile="default",
        seed=0,
        argv=("--profile", "default"),
    )


@pytest.fixture
def report_path(tmp_path: Path, known_case: Case, header: Header) -> Path:
    """Return the path of a complete report: two results of one case."""
    path = tmp_path / "report.jsonl"
    with ReportWriter(path) as writer:
        writer.header(header)
        writer.case(known_case)
        for k in (1, 2):
            writer.result(Result(known_case.id, {"model": "gdn", "k": k}, Verdict.PASS, 0.5))
        writer.close(1.0)
    return path


@pytest.fixture
def edit_report(report_path: Path) -> Callable[[Callable[[list[Any]], object]], Path]:
    """Return a function that lets another edit the report's records in place."""

    def edit(change: Callable[[list[Any]], object]) -> Path:
        records = [json.loads(line) for line in report_path.read_text().splitlines()]
        change(records)
        report_path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return report_path

    return edit


@pytest.fixture
def run_cases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs cases in an inner pytest, reporting into ``out``."""
    # A subprocess runs elsewhere, where a relative search path would no longer find the package.
    monkeypatch.setenv("PYTHONPATH", str(Path(str(mtp_conformance.__file__)).parents[1].resolve()))

    def run(source: str, *options: str, subprocess: bool = False) -> pytest.RunResult:
        pytester.makepyfile(test_cases=CASE + source)
        arguments = ("-p", "mtp_conformance.plugin", "--report", "out", *options)
        if subprocess:
            return pytester.runpytest_subprocess(*arguments)
        return pytester.runpytest_inprocess(*arguments)

    return run


@pytest.fixture
def report_of(
    pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult]
) -> Callable[..., Report]:
    """Return a function that runs cases in an inner pytest and reads their report."""

    def report(source: str, *options: str) -> Report:
        run_cases(source, *options)
        return read_report(pytester.path / "out" / "report.jsonl")

    return report


@pytest.fixture
def known_run(pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult]) -> Run:
    """Return a run of a case that fails, with a list of known failures."""
    return Run(pytester, run_cases)
