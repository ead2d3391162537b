"""`python -m mtp_decoder generate` at a temperature."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.decoder.command_line import CommandLine

HOT = ("--temp", "0.8", "--top-p", "0.95", "--top-k", "50", "--min-p", "0.01", "--seed", "3")


def _tokens(generate: CommandLine, folder: Path, *options: str) -> list[int]:
    done = generate(folder, "--json", "--max-tokens", "12", *options)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)["tokens"]


def test_a_seed_settles_the_tokens(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """A seed gives the same tokens for every number of drafts, and another one others."""
    folder = checkpoint("gdn-agree")
    runs = [_tokens(generate, folder, *HOT, "--num-draft-tokens", k) for k in ("0", "2", "5")]
    assert runs[0] == runs[1] == runs[2]
    assert _tokens(generate, folder, *HOT, "--seed", "4") != runs[0]
    assert _tokens(generate, folder) != runs[0]


@pytest.mark.parametrize(
    "option", [("--temp", "0.2"), ("--top-p", "0.3"), ("--top-k", "2"), ("--min-p", "0.5")]
)
def test_every_option_counts(
    generate: CommandLine, checkpoint: Callable[..., Path], option: tuple[str, str]
) -> None:
    """Each option alone changes what is sampled."""
    folder = checkpoint("gdn")
    warm = ("--temp", "1.5", "--seed", "3")
    assert _tokens(generate, folder, *warm, *option) != _tokens(generate, folder, *warm)


def test_rejection(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """Rejection sampling gives other tokens of the same law, and the same ones each time."""
    folder = checkpoint("gdn-agree")
    first, second = (_tokens(generate, folder, *HOT, "--acceptance", "rejection") for _ in "ab")
    assert first == second != _tokens(generate, folder, *HOT)


def test_refused(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """A value that means nothing is one line of error."""
    assert generate.refused(checkpoint("gdn"), "--temp", "-1") == (
        "error: temp must be 0 or more, not -1.0\n"
    )
