"""`python -m mtp_decoder --help`."""

import re
import shlex

import pytest

from mtp_decoder.__main__ import main

OPTIONS = ("--model", "--prompt", "--num-draft-tokens", "--rewind", "--loader", "--json")


@pytest.mark.parametrize("command", [[], ["generate"]])
def test_examples(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    """Help exits with 0 and ends with commands that name a model and a prompt."""
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    examples = re.findall(r"^  (python -m .*)$", capsys.readouterr().out, re.MULTILINE)
    assert exit_.value.code == 0
    assert len(examples) == 4
    assert all({"generate", "--model", "--prompt"} <= set(shlex.split(e)) for e in examples)


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Help of `generate` names its options."""
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    text = capsys.readouterr().out
    assert [option for option in OPTIONS if option not in text] == []


def test_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command the usage is printed, with exit code 2."""
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2
    assert "usage: python -m mtp_decoder" in capsys.readouterr().err
