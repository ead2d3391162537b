"""Every broken checkpoint has an error of its own, from the gate and from the decoder alike."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.__main__ import main as command_line
from mtp_conformance.failure import RuntimeNameError, UsageError
from mtp_decoder.__main__ import main
from tests.gate.broken import BROKEN, doubled, doubled_head
from tests.gate.conftest import Gated
from tests.gate.folders import QWEN, Tensors, copied, edited, is_head

Gate = Callable[..., Gated]
Folders = Callable[[str], Path]
ALONE = ("--runtime", "tests.gate.runtimes:stream_alone")


@pytest.mark.parametrize("name", BROKEN)
def test_broken(tmp_path: Path, gated: Gate, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Both refuse the folder in one sentence that says what is wrong with it."""
    folder = BROKEN[name].make(tmp_path / "folder")
    capsys.readouterr()
    code = main(["generate", "--model", str(folder), "--prompt", "ab", "--max-tokens", "2"])
    printed = capsys.readouterr()
    assert (code, printed.out, printed.err.count("\n")) == (2, "", 1)
    with pytest.raises(UsageError, match=BROKEN[name].said) as refusal:
        gated(folder)
    assert printed.err == f"error: {refusal.value}\n"
    assert not (tmp_path / "out").exists()


def test_errors_differ(tmp_path: Path, gated: Gate) -> None:
    """No pattern matches what is said of another broken folder."""
    said: dict[str, str] = {}
    for number, (name, broken) in enumerate(BROKEN.items()):
        with pytest.raises(UsageError) as refusal:
            gated(broken.make(tmp_path / str(number)))
        said[name] = str(refusal.value)
    assert len({text.replace(str(tmp_path), "")[3:] for text in said.values()}) == len(BROKEN)


def test_no_head(tmp_path: Path, gated: Gate) -> None:
    """Without a head there is nothing to draft with, and it is said where it may have gone."""

    def drop(tensors: Tensors) -> None:
        for name in [name for name in tensors if is_head(name)]:
            del tensors[name]

    folder = edited(copied(QWEN, tmp_path / "folder"), drop)
    with pytest.raises(UsageError, match=r"has no MTP head: .*mlx-lm drops them.*mtp\.safetensors"):
        gated(folder)


def test_the_option_settles_it(
    tmp_path: Path, gated: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is right given, contradicting folders decode as the one they were made from."""
    texts: list[str] = []
    for folder, *options in (
        (QWEN,),
        (doubled(tmp_path / "trunk"), "--norms", "about-one"),
        (doubled_head(tmp_path / "head"), "--head-norms", "about-one"),
    ):
        command = ["--model", str(folder), "--prompt", "def read", "--max-tokens", "8", "--json"]
        capsys.readouterr()
        assert main(["generate", *command, *map(str, options)]) == 0
        record = json.loads(capsys.readouterr().out)
        texts.append(f"{record['tokens']} {record['accepted_by_depth']}")
    assert texts[0] == texts[1] == texts[2]
    done = gated(tmp_path / "trunk", "--norms", "about-one", k=1)
    assert (done.code, "1 file, not quantised, norms about one" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*ALONE, "--row-exact"), r"--row-exact: builtin has no row-exact mode; leave it out"),
        (("--k", "65", "--max-tokens", "12"), r"--k 65: builtin drafts at most 64 tokens"),
        (("--max-tokens", "5"), r"--max-tokens 5: give 6 or more"),
        (("--strategy", "magic"), r"--strategy magic: builtin has tape, rerun, snapshot, replay"),
        (("--prompts", "nowhere.txt"), r"--prompts nowhere\.txt: .*No such file"),
        (("--runtime", "tests.gate.runtimes:drifting", "--norms", "about-one"), r"--norms and"),
    ],
)
def test_options(gated: Gate, options: tuple[str, ...], said: str) -> None:
    """An option that cannot be used is refused before anything is judged, and says what can."""
    with pytest.raises(UsageError, match=said):
        gated(QWEN, *options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no prompt in it; give one a line"),
        ("{", "line 1 is not JSON"),
        ('{"text": "a"}', r'line 1: give a string, \{"prompt": "\.\.\."\} or'),
        ('"ab"\n[1, -2]', "line 2: give a string"),
        ("[true]", "line 1: give a string"),
        ('""', "line 1: no token in it"),
        ("[1]\n[2, 260]", "prompt line-2 holds token 260, the vocabulary ends at 259"),
    ],
)
def test_prompts(tmp_path: Path, gated: Gate, text: str, said: str) -> None:
    """A file of prompts that is none is refused by its line."""
    file = tmp_path / "mine.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        gated(QWEN, prompts=file)


@pytest.mark.parametrize("k", ["0", "a", "1,,2", "-1", ""])
def test_depths(capsys: pytest.CaptureFixture[str], k: str) -> None:
    """What is no list of numbers from 1 is no K."""
    with pytest.raises(SystemExit) as exit_:
        command_line(["gate", "--model", str(QWEN), "--k", k])
    assert exit_.value.code == 2
    assert "is no list of numbers from 1, such as 1,2,3" in capsys.readouterr().err


def test_no_folder(tmp_path: Path, gated: Gate) -> None:
    """A folder that is not there, or a file, is no model."""
    with pytest.raises(UsageError, match=r"nowhere is no folder; give a checkpoint folder"):
        gated(tmp_path / "nowhere")


@pytest.mark.parametrize("config", ['{"model_type": "llama"}', "{}"])
def test_another_family(tmp_path: Path, gated: Gate, config: str) -> None:
    """A family that nothing here decodes is named beside those that are."""
    folder = copied(QWEN, tmp_path / "folder")
    (folder / "config.json").write_text(config)
    said = r"model_type '(llama|None)' is none of qwen3_5, .*, qwen4_exp; .*--runtime package"
    with pytest.raises(UsageError, match=said):
        gated(folder)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, r"has no config\.json; give a checkpoint folder$"),
        ("{", r"config\.json is not JSON: [^;]*$"),
    ],
)
def test_no_config(tmp_path: Path, gated: Gate, config: str | None, said: str) -> None:
    """A folder that is no model is told so, and not to go on without a tokenizer."""
    folder = tmp_path / "folder"
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config)
    with pytest.raises(UsageError, match=said):
        gated(folder, prompts=None)


def test_no_such_runtime(gated: Gate) -> None:
    """A runtime that cannot be made is named."""
    with pytest.raises(RuntimeNameError, match=r"--runtime tests\.nowhere:make"):
        gated(QWEN, "--runtime", "tests.nowhere:make")


def test_no_tokenizer(tmp_path: Path, gated: Gate) -> None:
    """Without a tokenizer texts cannot be encoded, and tokens can be given; those are decoded."""
    folder = copied(QWEN, tmp_path / "folder")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    texts = tmp_path / "texts.txt"
    texts.write_text("def f\n")
    with pytest.raises(UsageError, match=r"has no tokenizer\.json; .*--prompts FILE\.jsonl with"):
        gated(folder, prompts=texts)
    assert gated(folder, k=1).code == 0
