"""`python -m mtp_decoder bench`."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtp_decoder.__main__ import main
from mtp_decoder.bench import command, running
from mtp_decoder.bench.plan import Job, Plan
from mtp_decoder.bench.rows import read_rows
from tests.decoder.bench.made import measured

Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Bench:
    """Return a function that runs `bench` with processes that say what they should at once."""
    whole = running.run_plan

    def start(plan: Plan, job: Job) -> list[dict[str, Any]]:
        one = measured(job)
        return [{**one, "repeat": repeat} for repeat in range(job.block.repeats)]

    def at_once(*arguments: Any, **options: Any) -> Any:
        return whole(*arguments, **options, start=start)

    monkeypatch.setattr(command, "run_plan", at_once)

    def call(*options: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["bench", "--out", str(tmp_path / "out"), *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Help ends with commands that can be pasted."""
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "--help"])
    text = capsys.readouterr().out
    examples = re.findall(r"^  (python -m .*)$", text, re.MULTILINE)
    assert exit_.value.code == 0
    assert len(examples) == 5
    for example in examples:
        words = shlex.split(example)
        assert words[3] == "bench"
        assert [word for word in words if word.startswith("--") and word not in text] == []


def test_json(bench: Bench, checkpoint: Callable[..., Path]) -> None:
    """One object a raw run, as it is in the file, and nothing else."""
    code, out, err = bench("--model", str(checkpoint("gdn")), "--json", "--quiet")
    records = [json.loads(line) for line in out.splitlines()]
    assert (code, err, {record["type"] for record in records}) == (0, "", {"run"})
    assert len(records) == 2 * (1 + 2 * 8)


def test_blocks(bench: Bench, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """A block a strategy and place of the experts, with mlx-lm's loop where it has the class."""
    prompt = tmp_path / "prose.txt"
    prompt.write_text("It was")
    options = ("--rewind", "tape,replay", "--num-draft-tokens", "0,2", "--expert-budget", "20000")
    folder = str(checkpoint("gdn-moe"))
    code, out, err = bench("--model", folder, *options, "--prompt", f"code={prompt}")
    rows = read_rows(tmp_path / "out" / "rows.jsonl")
    ways = {(run.block.partition(", ")[2], str(run.way)) for run in rows.runs}
    assert code == 0
    assert len(ways) == 2 * 3 + 2 * 2
    assert ("replay, experts on disk", "mtp-decoder K=2 replay, experts on disk") in ways
    assert "tokens/s" in out
    assert "1/24 gdn-moe-" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--num-draft-tokens", "0,x"), "--num-draft-tokens is like 0,1,3, not 'x'"),
        (("--num-draft-tokens", "99"), "num_draft_tokens must be in 0..64"),
        (("--rewind", "tapes"), "--rewind is one of tape, rerun, snapshot, replay, not 'tapes'"),
        (("--prompt", "code"), "--prompt is NAME=FILE, not 'code'"),
        (("--prompt", "code=/no/such"), "cannot read the prompt /no/such: No such file"),
        (("--passes", "3"), "passes must be 2, 4, 6"),
        (("--rewind", "tape,tape"), "--rewind has 'tape' twice"),
        (("--num-draft-tokens", "0,2,2"), "--num-draft-tokens has 2 twice"),
        (("--prompt", f"a={__file__}", "--prompt", f"a={__file__}"), "--prompt has 'a' twice"),
    ],
)
def test_refuses(
    bench: Bench, checkpoint: Callable[..., Path], options: tuple[str, ...], message: str
) -> None:
    """Bad options are said in one line, with exit code 2, before anything runs."""
    code, out, err = bench("--model", str(checkpoint("gdn")), *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_refuses_folders(bench: Bench, tmp_path: Path) -> None:
    """So is a folder that is no checkpoint, and a file that is no rows."""
    assert "has no config.json" in bench("--model", str(tmp_path))[2]
    assert "cannot read" in bench("--rows", str(tmp_path / "no.jsonl"))[2]


def test_rows_that_are_there(bench: Bench, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """They are shown again, made into a page, and replaced only when asked."""
    folder = str(checkpoint("gdn"))
    bench("--model", folder, "--quiet")
    file = str(tmp_path / "out" / "rows.jsonl")
    code, out, _ = bench("--rows", file)
    assert (code, out.splitlines()[0].split()[:2]) == (0, ["block", "arm"])
    assert "is there: --resume goes on with it" in bench("--model", folder)[2]
    assert bench("--model", folder, "--fresh", "--quiet")[0] == 0


def test_a_failure(
    bench: Bench, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that failed is said as it happens, and makes the exit code 1."""
    monkeypatch.setattr("tests.decoder.bench.test_command.measured", lambda _: {"tempo": 3})
    code, out, err = bench("--model", str(checkpoint("gdn")), "--num-draft-tokens", "2")
    assert code == 1
    assert "printed other fields than a row's" in err
    assert "a process failed" in out


def test_interrupted(
    bench: Bench, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C exits with 130; the rows so far stay, and can be gone on with."""
    whole, done = measured, 0

    def stop(job: Job) -> dict[str, Any]:
        nonlocal done
        done += 1
        if done > 9:
            raise KeyboardInterrupt
        return whole(job)

    monkeypatch.setattr("tests.decoder.bench.test_command.measured", stop)
    folder = str(checkpoint("gdn"))
    code, _, err = bench("--model", folder, "--quiet")
    assert (code, err) == (130, "interrupted\n")
    rows = read_rows(tmp_path / "out" / "rows.jsonl")
    assert (len(rows.runs), rows.complete) == (18, False)
    monkeypatch.setattr("tests.decoder.bench.test_command.measured", whole)
    assert bench("--model", folder, "--quiet", "--resume")[0] == 0
    assert read_rows(tmp_path / "out" / "rows.jsonl").complete


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--plan", "p", "--max-tokens", "9"), "--max-tokens goes with --model; it has no effect"),
        (("--plan", "p", "--prompt", "a=b"), "--prompt goes with --model; it has no effect"),
        (("--rows", "r", "--passes", "4"), "it has no effect with --rows"),
        (("--rows", "r", "--quick"), "--quick goes with --model or --plan; it has no effect"),
    ],
)
def test_refuses_options_without_effect(
    bench: Bench, options: tuple[str, ...], message: str
) -> None:
    """A plan and rows say themselves what an option would; it is not passed over."""
    code, out, err = bench(*options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_json_of_rows_that_are_there(
    bench: Bench,
    checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Failures are among them, as they were when it ran; a page is not made of failures alone."""
    monkeypatch.setattr("tests.decoder.bench.test_command.measured", lambda _: {"tempo": 3})
    _, first, _ = bench("--model", str(checkpoint("gdn")), "--num-draft-tokens", "2", "--json")
    file = str(tmp_path / "out" / "rows.jsonl")
    code, again, _ = bench("--rows", file, "--json")
    assert (code, again, again.count("failure")) == (1, first, 3)
    assert "nothing was measured" in bench("--rows", file, "--page", str(tmp_path / "p.md"))[2]
