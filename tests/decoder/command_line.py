"""What the tests of `python -m mtp_decoder` share: running it in this process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from mtp_decoder.__main__ import main


class Done(NamedTuple):
    """Exit code, output and error output of one run."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs `generate` on a folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, folder: Path, *options: str, prompt: str = "abc") -> Done:
        """Run it to its end."""
        self._capsys.readouterr()
        code = main(["generate", "--model", str(folder), "--prompt", prompt, *options])
        printed = self._capsys.readouterr()
        return Done(code, printed.out, printed.err)

    def refused(self, folder: Path, *options: str) -> str:
        """Demand exit code 2 and nothing but one line of error; returns that line."""
        done = self(folder, *options)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        return done.err
