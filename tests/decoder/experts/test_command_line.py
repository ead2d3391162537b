"""`python -m mtp_decoder generate --expert-budget`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.decoder.command_line import CommandLine

SHORT = ("--max-tokens", "6", "--ignore-eos", "--json")
READER = ("--loader", "reference_models.checkpoint:read")


def record(generate: CommandLine, folder: Path, *options: str) -> dict[str, Any]:
    """Run it and return its one JSON object."""
    done = generate(folder, *SHORT, *options)
    assert (done.code, done.err) == (0, ""), done
    return json.loads(done.out)


@pytest.mark.parametrize("loader", [(), READER])
def test_the_tokens_are_the_same(
    generate: CommandLine, checkpoint: Callable[..., Path], loader: tuple[str, ...]
) -> None:
    """With experts on disk the tokens are those of experts in memory, and the reads are shown."""
    folder = checkpoint("gdn-moe")
    plain = record(generate, folder, *loader)
    options = ("--expert-budget", "0.02M", "--head-expert-budget", "6144")
    found = record(generate, folder, *loader, *options)
    assert found["tokens"] == plain["tokens"]
    assert "experts" not in plain
    target, head = found["experts"]["target"], found["experts"]["head"]
    assert (target["slots"], head["slots"]) == (3, 1)
    for part in (target, head):
        assert part["bytes_read"] == part["reads"] * part["expert_bytes"] > 0


@pytest.mark.parametrize("sort", ["on", "off"])
def test_grouping_changes_nothing(
    generate: CommandLine, checkpoint: Callable[..., Path], sort: str
) -> None:
    """Sorted rows or not, the tokens are the same."""
    folder = checkpoint("gdn-moe")
    found = record(generate, folder, "--group-experts", sort, "--expert-budget", "1M")
    assert found["tokens"] == record(generate, folder)["tokens"]


def test_the_head_takes_as_much(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """Without a budget of its own the head has as many bytes as the target."""
    found = record(generate, checkpoint("gdn-moe"), "--expert-budget", "24K")["experts"]
    assert (found["target"]["slots"], found["head"]["slots"]) == (4, 4)


def test_a_line_for_people(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """The table has a line on experts."""
    done = generate(checkpoint("gdn-moe"), "--max-tokens", "2", "--expert-budget", "24K")
    assert "experts of the target: 4 slots, " in done.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--expert-budget", "6143"), "one takes 6144 bytes; give at least that"),
        (("--head-expert-budget", "1M"), "--head-expert-budget needs --expert-budget"),
    ],
)
def test_refused(
    generate: CommandLine, checkpoint: Callable[..., Path], options: tuple[str, ...], said: str
) -> None:
    """A budget for no expert, and one for the head alone, are refused with what to give."""
    assert said in generate.refused(checkpoint("gdn-moe"), *options)


@pytest.mark.parametrize("size", ["much", "-1", "", "3X", "inf", "G"])
def test_no_size(generate: CommandLine, checkpoint: Callable[..., Path], size: str) -> None:
    """What is no number of bytes is a usage error."""
    with pytest.raises(SystemExit) as exit_:
        generate(checkpoint("gdn-moe"), f"--expert-budget={size}")
    assert exit_.value.code == 2
