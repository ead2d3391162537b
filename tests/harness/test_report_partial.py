"""Reports: a run that ends early leaves no report under the final name."""

import json
from pathlib import Path

import pytest

from mtp_conformance.report import Header, ReportError, ReportWriter, read_report


def test_an_interrupted_writer_leaves_a_partial_report(report_path: Path, header: Header) -> None:
    """On an exception the partial file says so, and an older report is gone."""
    with pytest.raises(KeyboardInterrupt), ReportWriter(report_path) as writer:
        writer.header(header)
        raise KeyboardInterrupt
    partial = report_path.with_name("report.partial.jsonl")
    assert json.loads(partial.read_text().splitlines()[-1])["complete"] is False
    assert not report_path.exists()
    with pytest.raises(ReportError, match="the run is incomplete"):
        read_report(partial)


def test_nothing_lies_under_the_final_name_while_writing(tmp_path: Path, header: Header) -> None:
    """A report takes its final name only when it is closed."""
    path = tmp_path / "report.jsonl"
    with ReportWriter(path) as writer:
        writer.header(header)
        assert not path.exists()
        assert writer.close(1.0) == path
    assert [found.name for found in tmp_path.iterdir()] == ["report.jsonl"]


def test_what_was_written_is_there(report_path: Path, header: Header) -> None:
    """A process that is killed cannot say goodbye: every record is in the file at once."""
    with ReportWriter(report_path) as writer:
        writer.header(header)
        (line,) = writer.partial.read_text().splitlines()
        assert json.loads(line)["type"] == "header"
