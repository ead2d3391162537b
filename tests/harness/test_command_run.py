"""`mtp-conformance run` judges a runtime in a pytest of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASE = ["--case", "rewind.state.one-round", "-k", "[attn-tape-k3-a1-bfloat16-p2]", "-n", "0"]


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mtp_conformance", "run", "--profile", "smoke", *words]
    return subprocess.run(
        [*command, "--out", str(folder)], capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_right_decoder(tmp_path: Path) -> None:
    """The builtin decoder passes, exits with 0 and leaves the report and its pages."""
    done = _run(tmp_path, *CASE, "--json")
    assert (done.returncode, json.loads(done.stdout)["counts"]) == (0, {"pass": 1})
    assert {path.name for path in tmp_path.iterdir()} >= {
        "report.jsonl",
        "report.html",
        "junit.xml",
    }


def test_near_tie_alone_is_inconclusive(tmp_path: Path) -> None:
    """A right runtime that rounds differently ends with 3, and says rate and severity."""
    cell = "[gdn-mtp2-tape-k2-bfloat16-p6]"
    runtime = "tests.fakes.rounds_differently:make_runtime"
    words = ["--case", "stream.greedy.guessed-drafts", "-k", cell, "-n", "0"]
    done = _run(tmp_path, *words, "--profile", "default", "--runtime", runtime)
    assert done.returncode == 3
    assert "near-ties: 1 of 1 streams, logits at most 0.03125 apart" in done.stdout


def test_wrong_decoder(tmp_path: Path) -> None:
    """A wrong runtime fails with 1, and its failure carries a command and a minimal round."""
    done = _run(tmp_path, *CASE, "--runtime", "tests.fakes.always_wrong:AlwaysWrong")
    records = map(json.loads, (tmp_path / "report.jsonl").read_text().splitlines())
    failure = next(record["failure"] for record in records if record["type"] == "result")
    assert done.returncode == 1
    assert failure["command"].startswith("mtp-conformance run --case rewind.state.one-round")
    assert failure["minimal"] == {"prompt_length": 1, "k": 1, "rounds": [[1, 0]]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runtime", "no.such.module:make"], "No module named 'no"),
        (["--runtime-cmd", "no-such-program"], "cannot start 'no-such-program'"),
        (["--case", "no.such.case"], "there is no case no.such.case"),
        (["-k", "nothing-like-this"], "no cell was selected"),
    ],
)
def test_unusable(tmp_path: Path, words: list[str], said: str) -> None:
    """What cannot be run exits with 2 and says why."""
    done = _run(tmp_path, *words, "-n", "0")
    assert done.returncode == 2
    assert said in done.stdout + done.stderr


def test_example_adapter_over_stdio(tmp_path: Path) -> None:
    """A runtime with a strategy of its own is really judged, in a process of its own."""
    adapter = f"{sys.executable} {ROOT / 'docs' / 'examples' / 'adapter.py'}"
    chosen = ["--case", "stream.greedy.guessed-drafts", "-k", "gdn+mlx-lm", "-n", "0"]
    done = _run(tmp_path, *chosen, "--runtime-cmd", adapter, "--json")
    assert (done.returncode, json.loads(done.stdout)["counts"]) == (0, {"pass": 1})


def test_earlier_report_is_not_taken_for_this_run(tmp_path: Path) -> None:
    """A run that cannot start removes what an earlier one left, and exits with 2."""
    (tmp_path / "report.jsonl").write_text("{}")
    broken = tmp_path / "broken.toml"
    broken.write_text("[[known]]")
    done = _run(tmp_path, *CASE, "--known", str(broken))
    assert (done.returncode, (tmp_path / "report.jsonl").exists()) == (2, False)
