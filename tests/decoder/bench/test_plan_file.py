"""A plan from a TOML file."""

import sys
from pathlib import Path

import pytest

from mtp_decoder import DecoderError
from mtp_decoder.bench.plan import Arm
from mtp_decoder.bench.plan_file import read_plan

PLAN = """
device = "cpu"
[prompts]
code = "{prompt}"
[models.tiny]
folder = "some/folder"
loader = "a.b:read"
expert_budget = 4096
[peers]
there = "{python} -c 'print(\\"there 3.1, mlx 0.32.4\\")'"
broken = "{python} -c 1/0"
gone = "/no/such/python"
[[blocks]]
title = "one"
model = "tiny"
workloads = ["code"]
beside = ["mlx-lm K=0", "there K=2", "broken K=2", "gone K=0"]
depths = [0, 2]
strategies = ["tape", "rerun"]
experts = "disk"
passes = 4
tokens = 20
warm_up = 5
repeats = 3
prompt_tokens = 2
"""


@pytest.fixture
def text(tmp_path: Path) -> str:
    """Return a plan whose prompt is there."""
    prompt = tmp_path / "code.txt"
    prompt.write_text("def")
    return PLAN.format(prompt=prompt, python=sys.executable)


def _encode(folder: Path, text: str) -> list[int]:
    return [*folder.name.encode()[:1], *text.encode()]


def _read(tmp_path: Path, text: str) -> object:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    return read_plan(file, _encode)


def test_a_plan(tmp_path: Path, text: str) -> None:
    """Keys become fields; runtimes that are not there are left out, and named."""
    file = tmp_path / "plan.toml"
    file.write_text(text)
    plan = read_plan(file, _encode)
    (block,) = plan.blocks
    tape, rerun = Arm(k=2, experts="disk"), Arm(k=2, strategy="rerun", experts="disk")
    plain = Arm(experts="disk")
    assert block.arms == (Arm("mlx-lm", 0, ""), Arm("there", 2, ""), plain, tape, rerun)
    sizes = (block.passes, block.tokens, block.warm_up, block.repeats, block.prompt_tokens)
    assert sizes == (4, 20, 5, 3, 2)
    assert plan.absent == {"broken": "cannot be imported", "gone": "not installed"}
    assert plan.versions == {"there": "3.1 with mlx 0.32.4"}
    assert plan.prompts == {"tiny": {"code": [*b"fdef"]}}
    assert (plan.device, plan.models["tiny"].expert_budget) == ("cpu", 4096)


def test_a_block_in_turns(tmp_path: Path, text: str) -> None:
    """Arms may take turns of so many tokens in one process; by default they do not."""
    file, old = tmp_path / "plan.toml", ', "there K=2", "broken K=2", "gone K=0"]'
    assert old in text
    text = text.replace(old, "]").replace('experts = "disk"', "slice_tokens = 4")
    file.write_text(text)
    assert read_plan(file, _encode).blocks[0].slice_tokens == 4
    file.write_text(text.replace("slice_tokens = 4", ""))
    assert read_plan(file, _encode).blocks[0].slice_tokens is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device", "devise", "has no 'devise'; known: device, prompts"),
        ("passes = 4", 'passes = "4"', "passes is a int, not '4'"),
        ("repeats = 3", "slice_tokens = 4", "cannot take turns in one process"),
        ("passes = 4", "passes = 3", "every pass forwards has one backwards"),
        ('title = "one"\n', "", "block lacks 'title'"),
        ('model = "tiny"', 'model = "huge"', "no model 'huge'; known: tiny"),
        ('["tape", "rerun"]', '["tapes"]', "a strategy is one of tape, rerun, snapshot, replay"),
        ('"disk"', '"cloud"', "experts are in memory or on disk, not 'cloud'"),
        ("expert_budget = 4096\n", "", "model tiny has no expert_budget"),
        ("there K=2", "there at 2", "an arm beside ours is like 'mlx-lm K=0', not 'there at 2'"),
        ("there K=2", "other K=2", r"no command for other: name it under \[peers\]"),
        ('workloads = ["code"]', 'workloads = ["song"]', "block one: no prompt 'song'"),
        ("code.txt", "song.txt", "cannot read the prompt .*song.txt: No such file"),
        ("[prompts]", "[prompts", "is no TOML"),
        ("[[blocks]]", "[blocks]", "blocks is a list"),
        ('device = "cpu"', 'device = "tpu"', "device is cpu or gpu, not 'tpu'"),
        ("[models.tiny]", "prose = 3\n[models.tiny]", "prompts: prose is a str, not 3"),
        ("[peers]", "[peers]\nother = 3", "peers: other is a str, not 3"),
    ],
)
def test_refuses(tmp_path: Path, text: str, old: str, new: str, message: str) -> None:
    """A key or value that is none is named."""
    assert old in text
    with pytest.raises(DecoderError, match=message):
        _read(tmp_path, text.replace(old, new))


def test_two_blocks_of_one_title(tmp_path: Path, text: str) -> None:
    """Rows name their block by its title."""
    with pytest.raises(DecoderError, match="a title of its own"):
        _read(tmp_path, text + text[text.index("[[blocks]]") :])


def test_no_file(tmp_path: Path) -> None:
    """A plan that is not there is named."""
    with pytest.raises(DecoderError, match=r"cannot read the plan .*plan\.toml"):
        read_plan(tmp_path / "plan.toml", _encode)


def test_files_that_are_no_text(tmp_path: Path, text: str) -> None:
    """A prompt or plan that is none in UTF-8 is named."""
    (tmp_path / "code.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DecoderError, match=r"the prompt .*code\.txt is no text in UTF-8"):
        _read(tmp_path, text)
    with pytest.raises(DecoderError, match=r"the plan .*code\.txt is no text in UTF-8"):
        read_plan(tmp_path / "code.txt", _encode)


def test_no_block(tmp_path: Path) -> None:
    """A plan without a block runs nothing, and is refused."""
    with pytest.raises(DecoderError, match="give at least one block"):
        _read(tmp_path, "blocks = []\n[prompts]\n[models]\n")
