"""Reports: what a failure may carry besides its place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtp_conformance.report import (
    Failure,
    Report,
    ReportError,
    Result,
    Shard,
    header_record,
    read_report,
    read_result,
    result_record,
)
from mtp_conformance.verdict import Verdict

OPTIONAL = {"ladder", "minimal", "margin", "stderr"}


def test_everything_known_comes_back(
    report: Report, write_report: Callable[[Report], Path], make_report: Callable[..., Report]
) -> None:
    """Ladder, minimal run, margin, stderr, shard and probe read back as written."""
    probe = {"operations": {"matmul": {"2": True}}}
    written = make_report(*report.results, shard=Shard(1, 2, 9), probe=probe)
    assert read_report(write_report(written)) == written


def test_what_is_not_known_is_absent() -> None:
    """A failure without them has no such fields, and reads back the same."""
    result = Result("a.b.c", {}, Verdict.FAIL, 0.0, {}, Failure("m", "c"))
    record: Any = json.loads(json.dumps(result_record(result)))
    assert not OPTIONAL & record["failure"].keys()
    assert read_result(record) == result


def test_a_whole_run_without_probe_says_neither(report: Report) -> None:
    """A header has a shard and a probe only where there are some."""
    assert not {"shard", "probe"} & header_record(report.header).keys()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("ladder", [3], "'rung' is missing or no dict"),
        ("ladder", [{"diverges_at": 3}], "'k' is missing"),
        ("minimal", {"prompt_length": 3, "k": 2, "rounds": [[1]]}, "something else than pairs"),
        ("minimal", {"prompt_length": 3, "k": 2, "rounds": [[1, "a"]]}, "'accepted' is missing"),
        ("margin", "small", "'margin' is missing"),
        ("stderr", 3, "'stderr' is missing"),
    ],
)
def test_a_malformed_field_is_refused(
    failure: Failure, field: str, value: object, reason: str
) -> None:
    """The reader names the field."""
    record: Any = result_record(Result("a.b.c", {}, Verdict.FAIL, 0.0, {}, failure))
    record["failure"][field] = value
    with pytest.raises(ReportError, match=reason):
        read_result(record)
