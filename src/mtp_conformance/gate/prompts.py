"""What the gate decodes after: a little code and a little prose, or a person's own prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mtp_conformance.failure import UsageError

Encode = Callable[[str], Sequence[int]]

TEXTS = {
    "code": (
        "class Reader:\n"
        '    """Reads records from a file, one a line."""\n\n'
        "    def __init__(self, path):\n"
        "        self.path = path\n"
        "        self.lines = []\n\n"
        "    def read(self):\n"
        "        with open(self.path) as file:\n"
        "            for line in file:\n"
    ),
    "prose": (
        "The letter came on a Tuesday, when nobody expected anything of the post. My aunt read it "
        "twice by the window, folded it, and said that we should have to open the house again. "
        "For the rest of the morning she"
    ),
}
"""The built-in prompts; both break off where there is something to go on with."""
_JSON_LINES = (".jsonl", ".json")


@dataclass(frozen=True)
class Prompt:
    """Token ids, and what they are called in the report."""

    name: str
    tokens: tuple[int, ...]


def built_in(encode: Encode) -> list[Prompt]:
    """A prompt of code and one of prose."""
    return [Prompt(name, tuple(encode(text))) for name, text in TEXTS.items()]


def read_prompts(file: Path, encode: Encode) -> list[Prompt]:
    """One prompt a line; in a `.jsonl` file a string, or an object with `prompt` or `tokens`.

    Raises:
        UsageError: the file cannot be read, a line is no prompt, or there is none.
    """
    try:  # not by `splitlines`: a form feed or U+2028 ends no line of text or JSON
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prompts {file}: {error}") from error
    found = list(_prompts(file, lines, encode))
    if not found:
        raise UsageError(f"--prompts {file}: no prompt in it; give one a line")
    return found


def _prompts(file: Path, lines: Sequence[str], encode: Encode) -> Iterator[Prompt]:
    as_json = file.suffix in _JSON_LINES
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        given = _parsed(file, number, line) if as_json else line
        tokens = tuple(encode(given)) if isinstance(given, str) else tuple(given)
        if not tokens:
            raise UsageError(f"--prompts {file}, line {number}: no token in it")
        yield Prompt(f"line-{number}", tokens)


def _parsed(file: Path, number: int, line: str) -> str | list[int]:
    where = f"--prompts {file}, line {number}"
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = fields.get("tokens") if fields.get("prompt") is None else fields["prompt"]
    if isinstance(value, str):
        return value
    ids = cast("list[Any]", value) if isinstance(value, list) else []
    if ids and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        return ids
    raise UsageError(f'{where}: give a string, {{"prompt": "..."}} or {{"tokens": [1, 2]}}')
