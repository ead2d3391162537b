"""`python -m mtp_decoder generate --json`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.decoder.command_line import CommandLine


@pytest.mark.parametrize("k", ["0", "2"])
def test_one_object(generate: CommandLine, checkpoint: Callable[..., Path], k: str) -> None:
    """The output is one JSON object on one line, and nothing else."""
    done = generate(checkpoint("gdn"), "--json", "--max-tokens", "6", "--num-draft-tokens", k)
    record = json.loads(done.out)
    assert (done.code, done.out.count("\n"), done.err) == (0, 1, "")
    assert set(record) == {
        "text",
        "tokens",
        "prompt_tokens",
        "tokens_per_second",
        "rounds",
        "drafted_by_depth",
        "accepted_by_depth",
        "seconds",
    }
    assert (len(record["tokens"]), len(record["drafted_by_depth"])) == (6, int(k))
