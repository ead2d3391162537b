"""The page of benchmarks is what its raw rows say."""

from dataclasses import replace
from pathlib import Path

from mtp_decoder.bench.page import page
from mtp_decoder.bench.rows import read_rows

DOCS = Path(__file__).parents[2] / "docs"
ROWS = DOCS / "results" / "bench" / "rows.jsonl"


def test_benchmarks_page_is_current() -> None:
    """`docs/benchmarks.md` is what the rows in `docs/results/bench` make today."""
    assert (DOCS / "benchmarks.md").read_text() == page(read_rows(ROWS), "benchmarks.svg")


def test_another_row_is_another_page() -> None:
    """A figure that is changed in the rows changes on the page."""
    rows = read_rows(ROWS)
    slower = [replace(run, decode_seconds=2 * run.decode_seconds) for run in rows.runs[:40]]
    other = replace(rows, runs=[*slower, *rows.runs[40:]])
    assert page(other, "benchmarks.svg") != (DOCS / "benchmarks.md").read_text()
