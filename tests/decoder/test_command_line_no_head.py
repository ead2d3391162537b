"""`python -m mtp_decoder generate`: a model without an MTP head."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.decoder.command_line import CommandLine
from tests.models.helpers import load_file, save_file


@pytest.fixture
def headless(folder: Callable[..., Path]) -> Path:
    """Return a checkpoint without head tensors."""
    path = folder("gdn")
    stored, metadata = load_file(path)
    save_file(path, {n: a for n, a in stored.items() if not n.startswith("mtp.")}, metadata)
    return path


def test_without_drafts(generate: CommandLine, headless: Path) -> None:
    """Without drafts it decodes, and reports no draft."""
    done = generate(headless, "--num-draft-tokens", "0", "--max-tokens", "4")
    assert (done.code, done.err) == (0, "")
    assert "3 prompt tokens, 4 tokens in " in done.out
    assert "accepted" not in done.out


def test_with_drafts(generate: CommandLine, headless: Path) -> None:
    """With drafts it is refused, and told how to decode."""
    message = "error: this model has no MTP head: load one, or decode with num_draft_tokens=0\n"
    assert generate.refused(headless) == message
