"""Reports: what is written is what is read."""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtp_conformance.case import Case
from mtp_conformance.report import (
    Failure,
    GitState,
    Header,
    ReportWriter,
    Result,
    manifest_hash,
    read_report,
)
from mtp_conformance.verdict import Verdict

TEXT = st.text(max_size=8)
OPTIONAL_TEXT = st.none() | TEXT
SECONDS = st.floats(0, 1e6)
FAILURES = st.builds(
    Failure,
    message=TEXT,
    command=TEXT,
    layer=OPTIONAL_TEXT,
    component=OPTIONAL_TEXT,
    round=st.none() | st.integers(0, 9),
    index=st.none() | st.lists(st.integers(0, 9), max_size=4).map(tuple),
    actual_bits=OPTIONAL_TEXT,
    expected_bits=OPTIONAL_TEXT,
    ulp=st.none() | st.integers(0, 2**65),
)
RESULTS = st.builds(
    Result,
    case=st.just("rewind.recurrent.reject-all"),
    params=st.dictionaries(TEXT, TEXT | st.integers() | st.booleans(), max_size=3),
    verdict=st.sampled_from(Verdict),
    seconds=SECONDS,
    witness=st.dictionaries(TEXT, st.integers(0, 2**40), max_size=3),
    failure=st.none() | FAILURES,
    reason=OPTIONAL_TEXT,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    results=st.lists(RESULTS, min_size=1, max_size=4, unique_by=lambda result: result.key),
    summary=TEXT,
    git=st.none() | st.builds(GitState, TEXT, st.booleans()),
    seconds=SECONDS,
)
def test_a_complete_report_reads_back_as_written(
    known_case: Case,
    header: Header,
    results: list[Result],
    summary: str,
    git: GitState | None,
    seconds: float,
) -> None:
    """Header, cases, results and counts come back equal, whatever text and numbers they hold."""
    case = replace(known_case, summary=summary)
    header = replace(header, git=git, manifest=manifest_hash([case]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.jsonl"
        with ReportWriter(path) as writer:
            writer.header(header)
            writer.case(case)
            for result in results:
                writer.result(result)
            writer.close(seconds)
        report = read_report(path)
    assert (report.header, report.cases, report.results) == (header, (case,), tuple(results))
    assert sum(report.counts.values()) == len(results)
    assert report.seconds == seconds
