"""`python -m mtp_decoder generate`: the text and the table below it."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mtp_decoder import Stops, generate_step
from tests.decoder.command_line import CommandLine
from tests.decoder.conftest import Zoo


def _emissions(*tokens: int) -> Callable[..., Iterator[tuple[int, None, bool]]]:
    """Something in place of `emit` that emits these tokens up to a stop."""

    def emissions(
        *arguments: Any, stops: Stops, **options: Any
    ) -> Iterator[tuple[int, None, bool]]:
        for at, token in enumerate(tokens):
            stops.until([token], 1, at)
            yield token, None, False
            if stops.ended_after:
                return

    return emissions


def test_the_tokens(generate: CommandLine, checkpoint: Callable[..., Path], zoo: Zoo) -> None:
    """The command emits the tokens `generate_step` does."""
    emitted = generate_step(list(b"abc"), zoo("gdn")[0], num_draft_tokens=0, max_tokens=8)
    done = generate(checkpoint("gdn"), "--max-tokens", "8", "--json")
    assert json.loads(done.out)["tokens"] == [token for token, *_ in emitted]


def test_the_table(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """Below the text stand speed, acceptance by depth and seconds by phase; it exits with 0."""
    done = generate(checkpoint("gdn"), "--max-tokens", "8")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert lines[-6].startswith("3 prompt tokens, 8 tokens in ")
    assert "tokens/s after the prefill" in lines[-5]
    assert [line[:17] for line in lines[-4:-1]] == [f"draft {d}: accepted" for d in (1, 2, 3)]
    assert [part.split()[0] for part in lines[-1].split("   ")] == [
        "prefill",
        "draft",
        "verify",
        "accept",
        "rewind",
    ]


def test_the_text(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text comes first, without the end-of-text token."""
    monkeypatch.setattr("mtp_decoder.__main__.emit", _emissions(*b"some text", 256))
    done = generate(checkpoint("gdn"))
    assert done.out.startswith("some text\n\n3 prompt tokens, 10 tokens")
    assert "endoftext" not in done.out


def test_a_stop_string(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text ends where a stop string begins, the tokens with the one that completes it."""
    monkeypatch.setattr("mtp_decoder.__main__.emit", _emissions(*b"some text and more"))
    done = generate(checkpoint("gdn"), "--stop", "never", "--stop", "xt")
    assert done.out.startswith("some te\n\n3 prompt tokens, 9 tokens")


def test_the_end_of_text_in_json(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In JSON the end of text is a token, and no part of the text."""
    monkeypatch.setattr("mtp_decoder.__main__.emit", _emissions(*b"ab", 256))
    record = json.loads(generate(checkpoint("gdn"), "--json").out)
    assert (record["tokens"], record["text"]) == ([97, 98, 256], "ab")


@pytest.mark.parametrize(("option", "count"), [([], 3), (["--ignore-eos"], 8)])
def test_where_it_ends(
    generate: CommandLine, folder: Callable[..., Path], option: list[str], count: int
) -> None:
    """It ends with a token the config calls the end of text, unless told to go on."""
    path = folder("gdn")
    options = ["--max-tokens", "8", "--json", *option]
    stream: list[int] = json.loads(generate(path, *options).out)["tokens"]
    config: dict[str, Any] = json.loads((path / "config.json").read_text())
    config["eos_token_id"] = stream[2]
    (path / "config.json").write_text(json.dumps(config))
    assert json.loads(generate(path, *options).out)["tokens"] == stream[:count]


def test_a_prompt_from_standard_input(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt `-` is read from standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO("abcde"))
    done = generate(checkpoint("gdn"), "--max-tokens", "2", "--json", prompt="-")
    assert json.loads(done.out)["prompt_tokens"] == 5
