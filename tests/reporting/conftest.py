"""Reports to make pages of, to merge and to compare."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mtp_conformance
from mtp_conformance.case import Case, Level
from mtp_conformance.report import (
    Failure,
    Header,
    Minimal,
    Report,
    ReportWriter,
    Result,
    Rung,
    Shard,
    manifest_hash,
    read_report,
)
from mtp_conformance.verdict import Verdict

CASE = """
import pytest
from mtp_conformance import *

def a_case(id, **options):
    return case(id, clause="c", oracle="A", witness="w", since="0.1.0", **options)

"""

MakeReport = Callable[..., Report]
WriteReport = Callable[..., Path]


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cases that inner runs declare out of each other's way."""
    # By module name: the package's attribute `case` is the decorator.
    monkeypatch.setattr(sys.modules["mtp_conformance.case"], "_registry", {})


@pytest.fixture
def state_case() -> Case:
    """Return a required case."""
    return Case(
        id="rewind.recurrent.reject-all",
        clause="rewind-1",
        level=Level.MUST,
        needs=("state",),
        oracle="the never-rejected run",
        witness="at least one reject",
        faults=("R1",),
        since="0.1.0",
        summary="A rejected draft leaves no trace.",
    )


@pytest.fixture
def advice_case(state_case: Case) -> Case:
    """Return a recommended case of another area."""
    id, summary = "stream.greedy.own-drafts", "Drafts do not change the stream."
    return replace(state_case, id=id, level=Level.SHOULD, summary=summary)


@pytest.fixture
def failure() -> Failure:
    """Return a failure of which everything is known."""
    return Failure(
        message="after round 2: layers.1 recurrent differs",
        command="python -m pytest 'conformance/test_x.py::test_y[gdn-k2]' -n 0",
        layer="layers.1",
        component="recurrent",
        round=2,
        index=(0, 1),
        actual_bits="0x3f800001",
        expected_bits="0x3f800000",
        ulp=1,
        ladder=(Rung(1, None), Rung(2, 17)),
        minimal=Minimal(3, 2, ((2, 1), (2, 0))),
        margin=0.015625,
        stderr="the end of stderr",
    )


@pytest.fixture
def header(state_case: Case, advice_case: Case) -> Header:
    """Return a header of a run of those two cases."""
    return Header(
        suite_version="0.1.0",
        git=None,
        manifest=manifest_hash([state_case, advice_case]),
        runtime={"name": "builtin", "versions": {"mlx": "0.32.4"}},
        mlx="0.32.4",
        mlx_lm=None,
        python="3.11.7",
        platform="linux-x86_64",
        device="cpu: test",
        profile="default",
        seed=0,
        argv=("--profile", "default"),
    )


@pytest.fixture
def make_report(header: Header, state_case: Case, advice_case: Case) -> MakeReport:
    """Return a function that makes a report of the two cases from results."""

    def make(*results: Result, **of_header: Any) -> Report:
        counts = Counter(result.verdict for result in results)
        return Report(replace(header, **of_header), (state_case, advice_case), results, counts, 1.5)

    return make


@pytest.fixture
def results(failure: Failure) -> tuple[Result, ...]:
    """Return a result of every verdict, on K = 1, 2 and so on."""
    quiet = (Verdict.PASS, Verdict.UNSUPPORTED, Verdict.XFAIL)
    return tuple(
        Result(
            "rewind.recurrent.reject-all",
            {"model": "gdn", "k": k},
            verdict,
            0.5,
            {"compared": 3},
            None if verdict in quiet else failure,
            None if verdict in (Verdict.PASS, Verdict.FAIL) else f"the reason of {verdict}",
        )
        for k, verdict in enumerate(Verdict, start=1)
    )


@pytest.fixture
def report(make_report: MakeReport, results: tuple[Result, ...]) -> Report:
    """Return a report with one result of every verdict."""
    return make_report(*results)


@pytest.fixture
def write_report(tmp_path: Path) -> WriteReport:
    """Return a function that writes a report, each into a folder of its own."""
    numbers = itertools.count()

    def write(report: Report) -> Path:
        folder = tmp_path / f"report-{next(numbers)}"
        folder.mkdir()
        path = folder / "report.jsonl"
        with ReportWriter(path) as writer:
            writer.header(report.header)
            for case in report.cases:
                writer.case(case)
            for result in report.results:
                writer.result(result)
            writer.close(report.seconds)
        return path

    return write


@pytest.fixture
def write_shards(
    make_report: MakeReport, write_report: WriteReport, results: Sequence[Result]
) -> Callable[..., list[Path]]:
    """Return a function that writes the results as two shards, the second one as told."""

    def write(
        second: Sequence[Result] = results[3:], index: int = 2, **of_header: Any
    ) -> list[Path]:
        total = len(results)
        halves = (
            make_report(*results[:3], shard=Shard(1, 2, total)),
            make_report(*second, **{"shard": Shard(index, 2, total), **of_header}),
        )
        return [write_report(half) for half in halves]

    return write


@pytest.fixture
def run_cases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs cases in an inner pytest, reporting into a folder."""
    # Workers run elsewhere, where a relative search path would no longer find the package.
    monkeypatch.setenv("PYTHONPATH", str(Path(str(mtp_conformance.__file__)).parents[1].resolve()))

    def run(source: str, *options: str, out: str = "out") -> pytest.RunResult:
        pytester.makepyfile(test_cases=CASE + source)
        return pytester.runpytest_inprocess(
            "-p", "mtp_conformance.plugin", "--report", out, *options
        )

    return run


@pytest.fixture
def report_of(
    pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult]
) -> Callable[..., Report]:
    """Return a function that runs cases in an inner pytest and reads their report."""

    def report(source: str, *options: str, out: str = "out") -> Report:
        run_cases(source, *options, out=out)
        return read_report(pytester.path / out / "report.jsonl")

    return report
