"""Raw rows: one JSON object a line."""

import json
from pathlib import Path

import pytest

from mtp_decoder import DecoderError
from mtp_decoder.bench.rows import Failure, Header, line_of, read_rows
from tests.decoder.bench.made import DEEP, MACHINE, run

HEADER = line_of(Header("p", MACHINE))
RUN = line_of(run(DEEP))
FAILURE = line_of(Failure("b", "m", 0, "mtp-decoder", 2, "tape", "memory", "no"))
END = line_of(None)


def test_a_record() -> None:
    """A run says arm, K, strategy, workload, tokens, seconds by phase, accepts by depth, bytes."""
    record = json.loads(RUN)
    assert record["type"] == "run"
    said = {"arm", "k", "strategy", "workload", "tokens", "seconds", "accepted_by_depth", "bytes"}
    assert said <= set(record)
    assert set(record["seconds"]) == {"prefill", "draft", "verify", "accept", "rewind"}
    assert RUN.count("\n") == 1


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Records come back as they were."""
    file = tmp_path / "rows.jsonl"
    file.write_text(HEADER + RUN + FAILURE + END)
    rows = read_rows(file)
    assert (rows.header.plan, rows.complete) == ("p", True)
    assert rows.runs == [run(DEEP)]
    assert [failure.error for failure in rows.failures] == ["no"]
    file.write_text(HEADER + RUN)
    assert not read_rows(file).complete


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (RUN, "has no header"),
        (HEADER + RUN[:40], ":2: no row of a benchmark"),
        (HEADER + '{"type": "run"}\n', "other fields"),
        (HEADER + '{"type": "song"}\n', "no row of a benchmark"),
        (HEADER + "[]\n", "no row of a benchmark"),
        (HEADER + END + RUN, ":3: two files of rows in one"),
        (HEADER + HEADER, "two files of rows in one"),
        (HEADER.replace('"schema": 1', '"schema": 9'), "schema 9, not 1"),
    ],
)
def test_refuses(tmp_path: Path, text: str, message: str) -> None:
    """A file that is not rows, or not whole lines, is refused with its name and line."""
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    with pytest.raises(DecoderError, match=message) as caught:
        read_rows(file)
    assert str(file) in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    """So is one that is not there."""
    with pytest.raises(DecoderError, match="No such file"):
        read_rows(tmp_path / "rows.jsonl")


def test_no_text(tmp_path: Path) -> None:
    """So is one that is no text, such as weights."""
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\xff\x00")
    with pytest.raises(DecoderError, match="is no text; give a rows"):
        read_rows(file)
