"""`python -m mtp_decoder generate`: Ctrl-C."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtp_decoder import Session
from tests.decoder.command_line import CommandLine


def _interrupt(*arguments: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("what", ["load", "read_tokenizer"])
def test_while_loading(
    generate: CommandLine,
    checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    """Ctrl-C while a model is loaded exits with 130 and no traceback."""
    monkeypatch.setattr(f"mtp_decoder.__main__.{what}", _interrupt)
    assert generate(checkpoint("gdn")) == (130, "", "interrupted\n")


def _interrupt_after(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    whole, done = Session.step, 0

    def step(session: Session, **options: Any) -> Any:
        nonlocal done
        done += 1
        return whole(session, **options) if done <= rounds else _interrupt()

    monkeypatch.setattr(Session, "step", step)


def test_while_decoding(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while decoding exits with 130, below the text and the numbers so far."""
    _interrupt_after(monkeypatch, 2)
    done = generate(checkpoint("gdn"), "--num-draft-tokens", "0")
    assert (done.code, done.err) == (130, "")
    assert "3 prompt tokens, 3 tokens in " in done.out


def test_while_decoding_to_json(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--json` the object holds what came so far."""
    _interrupt_after(monkeypatch, 2)
    done = generate(checkpoint("gdn"), "--num-draft-tokens", "0", "--json")
    assert (done.code, len(json.loads(done.out)["tokens"])) == (130, 3)


def test_during_the_prompt(
    generate: CommandLine, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the first token is no different."""
    monkeypatch.setattr(Session, "prefill", _interrupt)
    done = generate(checkpoint("gdn"))
    assert done.code == 130
    assert "3 prompt tokens, 0 tokens in " in done.out
