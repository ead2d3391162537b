"""Shards: two halves of a run make the whole of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mtp_conformance.report import Report, Shard, read_report
from mtp_conformance.reporting.merge import merge

SOURCE = """
def cells(profile):
    axes = [(m, p, k) for m in ("gdn", "qsa", "ple") for p in (1, 2) for k in (1, 2)]
    return [Cell(model=m, k=k, dtype="float32", prompt_length=p) for m, p, k in axes]

@a_case("rewind.state.a", cells=cells)
def test_rewound(cell, witness):
    '''A rewound state is equal.'''
    witness.add(compared=1)
    assert cell.k == 1

@a_case("rewind.state.b")
def test_forked(witness):
    '''A fork is independent.'''
    raise Unsupported("no fork")

@a_case("rewind.state.c")
def test_deselected(witness):
    '''Nothing.'''
"""
SELECTED = ("-k", "not deselected")

ReportOf = Callable[..., Report]


def _timeless(report: Report) -> tuple[object, ...]:
    results = [replace(result, seconds=0.0) for result in report.results]
    return replace(report.header, argv=()), report.cases, results, report.counts


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup")], ids=["alone", "two"])
def test_merged_shards_are_the_whole_run(
    report_of: ReportOf, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    """Two shards, merged, hold what a run without shards holds."""
    whole = report_of(SOURCE, *SELECTED)
    for index in (1, 2):
        part = report_of(SOURCE, *SELECTED, *workers, "--shard", f"{index}/2", out=str(index))
        assert part.header.shard == Shard(index, 2, 13)
        assert part.cases == whole.cases
    folders = [pytester.path / name / "report.jsonl" for name in ("2", "1")]
    out = pytester.path / "merged.jsonl"
    merged = merge(folders, out)
    assert _timeless(merged) == _timeless(whole)
    assert read_report(out) == merged
    assert "--shard" not in merged.header.argv


def test_cells_that_share_a_prefill_stay_together(report_of: ReportOf) -> None:
    """No model and prompt length is in two shards."""
    found = [
        {(r.params.get("model"), r.params.get("prompt_length")) for r in report.results}
        for report in (report_of(SOURCE, *SELECTED, "--shard", f"{n}/2") for n in (1, 2))
    ]
    assert found[0]
    assert found[1]
    assert not found[0] & found[1]


def test_a_wrong_form_is_a_usage_error(run_cases: Callable[..., pytest.RunResult]) -> None:
    """Pytest ends with its usage error and says the form."""
    run = run_cases(SOURCE, "--shard", "3/2")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["*--shard takes I/N with 1 <= I <= N, such as 1/4; got '3/2'*"])


def test_what_another_shard_runs_is_deselected(run_cases: Callable[..., pytest.RunResult]) -> None:
    """Pytest counts the other shards' cells as deselected."""
    run = run_cases(SOURCE, *SELECTED, "--shard", "1/2")
    outcomes = run.parseoutcomes()
    assert outcomes["deselected"] == 1 + 13 - sum(
        outcomes[name] for name in ("passed", "failed", "skipped") if name in outcomes
    )
