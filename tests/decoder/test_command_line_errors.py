"""`python -m mtp_decoder generate`: bad input is one line on the error output, and exit code 2."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from tests.decoder.command_line import CommandLine


def test_no_folder(generate: CommandLine, tmp_path: Path) -> None:
    """A folder that is not there has no config.json."""
    assert "nowhere has no config.json" in generate.refused(tmp_path / "nowhere")


def test_no_tokenizer(generate: CommandLine, folder: Callable[..., Path]) -> None:
    """A missing tokenizer.json is named."""
    path = folder("gdn")
    (path / "tokenizer.json").unlink()
    assert generate.refused(path) == f"error: {path} has no tokenizer.json\n"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "1.0"}'])
def test_a_broken_tokenizer(generate: CommandLine, folder: Callable[..., Path], text: str) -> None:
    """So is a folder whose tokenizer.json cannot be read."""
    path = folder("gdn")
    (path / "tokenizer.json").write_text(text)
    assert f"{path} has no usable tokenizer" in generate.refused(path)


@pytest.mark.parametrize("text", ["[]", "3", "{"])
@pytest.mark.parametrize("options", [[], ["--loader", "reference_models.checkpoint:read"]])
def test_a_broken_config(
    generate: CommandLine, folder: Callable[..., Path], text: str, options: list[str]
) -> None:
    """A config.json that is no JSON object is named, with a loader of one's own too."""
    path = folder("gdn")
    (path / "config.json").write_text(text)
    assert f"{path / 'config.json'} " in generate.refused(path, *options)


@pytest.mark.parametrize("name", ["gdn-moe", "gdn-next"])
def test_experts_the_device_cannot_run(
    generate: CommandLine, checkpoint: Callable[..., Path], name: str
) -> None:
    """bfloat16 experts on the CPU, where mlx multiplies float32 alone, are refused by dtype."""
    path = checkpoint(name, mx.bfloat16)
    message = generate.refused(path)
    assert f"{path} has bfloat16 experts, which mlx cannot multiply on the cpu" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-draft-tokens", "65"], "num_draft_tokens must be in 0..64, not 65"),
        (["--max-tokens", "-2"], "max_tokens must be -1 (no limit) or more, not -2"),
        (["--prefill-step-size", "0"], "prefill_step_size must be at least 1, not 0"),
    ],
)
def test_impossible_numbers(
    generate: CommandLine, checkpoint: Callable[..., Path], options: list[str], message: str
) -> None:
    """A number no decoding is possible with is named."""
    assert generate.refused(checkpoint("gdn"), *options) == f"error: {message}\n"


def test_an_empty_prompt(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """An empty prompt is refused."""
    done = generate(checkpoint("gdn"), prompt="")
    assert (done.code, done.err) == (2, "error: the prompt is empty: give at least one token\n")
