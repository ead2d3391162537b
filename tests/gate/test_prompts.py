"""What is one prompt of a file, and what is none."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mtp_conformance.failure import UsageError
from mtp_conformance.gate.prompts import read_prompts


def _read(file: Path, text: str) -> list[tuple[str, str]]:
    """Names and texts of the prompts, by way of bytes as tokens."""
    file.write_bytes(text.encode())

    def encode(prompt: str) -> Sequence[int]:
        return list(prompt.encode())

    return [(p.name, bytes(p.tokens).decode()) for p in read_prompts(file, encode)]


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ("one\n\ntwo\n", [("line-1", "one"), ("line-3", "two")]),
        ("one\r\ntwo", [("line-1", "one"), ("line-2", "two")]),
        ("\ufeffone\n", [("line-1", "one")]),
        ("a\fb\u2028c\x85d\n", [("line-1", "a\fb\u2028c\x85d")]),
    ],
)
def test_lines(tmp_path: Path, text: str, prompts: list[tuple[str, str]]) -> None:
    """A line ends at its end alone, not at a form feed or separator in it; no mark comes along."""
    assert _read(tmp_path / "prompts.txt", text) == prompts


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ('"a\u2028b"', "a\u2028b"),
        ('\ufeff"a"', "a"),
        ('{"prompt": "a", "tokens": null}', "a"),
        ('{"prompt": null, "tokens": [97, 98]}', "ab"),
    ],
)
def test_json_lines(tmp_path: Path, text: str, prompt: str) -> None:
    """A separator is a character of a string; a field that is null is not there."""
    assert _read(tmp_path / "prompts.jsonl", text) == [("line-1", prompt)]


def test_nested_too_deep(tmp_path: Path) -> None:
    """What Python cannot parse is no prompt."""
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        _read(tmp_path / "prompts.jsonl", "[" * 100_000)
