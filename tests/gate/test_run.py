"""A run of the gate: its report, its progress, its memory, Ctrl-C, and runtimes elsewhere."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.adapters.builtin import BuiltinSession
from mtp_conformance.case import Level
from mtp_conformance.commands import gate
from mtp_conformance.gate import checks
from mtp_conformance.gate.checks import accepts, guess_for
from mtp_conformance.protocol import Options, Outcome
from mtp_conformance.report import ReportError, read_report
from mtp_conformance.reporting.pages import PAGES
from reference_models.checkpoint import write_zoo
from tests.gate.conftest import Gated
from tests.gate.folders import QWEN, copied

Gate = Callable[..., Gated]


def test_report(plain: Gated) -> None:
    """The report has every claim for every K and accept count, the pages lie beside it."""
    report = plain.report
    assert {page.name for page in plain.folder.iterdir()} == {"report.jsonl", *PAGES}
    rounds = [
        (r.params["k"], r.params["accepted"])
        for r in report.results
        if r.case == "rewind.state.checkpoint"
    ]
    assert rounds == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    counts = {case.id: 0 for case in report.cases}
    for result in report.results:
        counts[result.case] += 1
        assert result.witness["compared"] > 0
    assert list(counts.values()) == [1, 2, 5, 2, 2, 2]
    assert report.header.runtime["checkpoint"] == {
        "name": "qwen3_5-bytes",
        "family": "qwen3_5",
        "files": "1 file",
        "quantised": "not quantised",
        "norms": "norms about zero",
        "head": "in model.safetensors, its norms about zero",
        "dtype": "logits in bfloat16",
    }
    page = (plain.folder / "report.html").read_text()
    assert f"peak {report.memory['peak']:,} bytes" in page


def test_screen(plain: Gated) -> None:
    """What came out fits on one screen: two dozen lines."""
    assert plain.out.count("\n") <= 24
    assert "K=0 twice gives the same bits after 1/1 prompts" in plain.out
    assert "a verify pass of this model is at K=1, 2" in plain.out


def test_progress(plain: Gated) -> None:
    """A line for what is loaded, for every probe and for every cell."""
    lines = plain.err.splitlines()
    assert lines[:2] == ["loading the checkpoint", "probing softmax"]
    assert lines[2] == "[1/14] control.determinism: prompt line-1"
    assert lines[-1] == "[14/14] stream.own-drafts: K 2, prompt line-1"


def test_json(gated: Gate) -> None:
    """As JSON: the answer, why, the exit code and where the report is."""
    done = gated(QWEN, "--json", "--quiet", k=1)
    record = json.loads(done.out)
    assert (record["answer"], record["exit"], record["open"]) == ("lossless", 0, [])
    assert record["counts"] == {"pass": 7}
    assert read_report(Path(record["report"])).memory == record["memory"]
    assert done.err == ""


def test_prompts_are_encoded(tmp_path: Path, gated: Gate) -> None:
    """Texts go through the folder's tokenizer: bytes here, so 5 and 6 tokens."""
    file = tmp_path / "texts.txt"
    file.write_text("def f\n\nIt was\n")
    done = gated(QWEN, prompts=file, k=1, **{"max-tokens": 6})
    found = {(r.params["prompt"], r.params["prompt_length"]) for r in done.report.results}
    assert found == {("line-1", 5), ("line-3", 6)}


def test_built_in_prompts(gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file there is a prompt of code and one of prose."""
    short = {"code": "def read(", "prose": "It was a"}
    monkeypatch.setattr("mtp_conformance.gate.prompts.TEXTS", short)
    monkeypatch.setattr(checks, "STATE_PROMPTS", 0)
    done = gated(QWEN, k=1, prompts=None, **{"max-tokens": 6})
    assert {r.params["prompt"] for r in done.report.results} == {"code", "prose"}


@pytest.mark.parametrize("k", range(1, 9))
def test_every_accept_count(k: int) -> None:
    """Rounds over the injected drafts accept 0 to K of them, each count once before any twice."""
    stream = [7 * i % 256 for i in range(60)]
    guess, last, found = guess_for(stream, k), 0, list[int]()
    while last + k + 1 < len(stream):
        window = range(last + 1, last + k + 1)
        right = next((n for n, i in enumerate(window) if guess[i] != stream[i]), k)
        found.append(right)
        last += right + 1
    assert sorted(accepts(k)) == list(range(k + 1))
    assert found[: k + 1] == accepts(k)


def test_interrupted(tmp_path: Path, gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C what ended before is kept in a report that says it is partial."""
    round_, left = BuiltinSession.round, [40]

    def interrupted(session: BuiltinSession, drafts: Sequence[int]) -> Outcome:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return round_(session, drafts)

    earlier = tmp_path / "out" / "report.html"
    earlier.parent.mkdir()
    earlier.write_text("of an earlier run")
    monkeypatch.setattr(BuiltinSession, "round", interrupted)
    done = gated(QWEN)
    assert (done.code, done.out) == (130, "")
    partial = done.folder / "report.partial.jsonl"
    assert done.err.splitlines()[-1] == f"interrupted; what ended before is in {partial}"
    assert [file.name for file in done.folder.iterdir()] == [partial.name]
    records = [json.loads(line) for line in partial.read_text().splitlines()]
    assert (records[0]["type"], records[-1]["complete"]) == ("header", False)
    assert 0 < sum(record["type"] == "result" for record in records) < 8
    with pytest.raises(ReportError, match="incomplete"):
        read_report(partial)


@pytest.mark.parametrize("moment", ["_facts", "_plan", "_header"])
def test_interrupted_early(gated: Gate, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """While the folder is loaded or the device probed there is nothing to keep, and it says so."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(vars(gate)["_Gate"], moment, interrupted)
    done = gated(QWEN)
    assert (done.code, done.out) == (130, "")
    assert done.err.splitlines()[-1] == "interrupted; nothing was judged yet"
    assert not done.folder.exists()


def test_memory(gated: Gate) -> None:
    """Longer streams need no more memory: no state and no logits of earlier tokens are kept."""
    peaks = [gated(QWEN, k=1, **{"max-tokens": n}).report.memory for n in (8, 40)]
    one_row = 260 * 2
    assert peaks[1]["peak"] - peaks[0]["peak"] < 16 * one_row, peaks
    assert peaks[0]["state"] > 32 * one_row


def test_another_process(gated: Gate) -> None:
    """A runtime over stdio loads the folder itself, and its sessions are closed as they end."""
    command = shlex.join([sys.executable, "-m", "tests.gate.stdio_runtime"])
    done = gated(QWEN, "--runtime-cmd", command, k=1, **{"max-tokens": 6})
    assert done.code == 0, done.out
    assert "in the harness alone" in done.out


def test_sessions_are_closed(gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a handful of sessions is open at a time."""
    open_, most = set[int](), [0]
    start, close = BuiltinSession.__init__, BuiltinSession.close

    def opened(session: Any, *parts: Any) -> None:
        start(session, *parts)
        open_.add(id(session))
        most[0] = max(most[0], len(open_))

    def closed(session: Any) -> None:
        close(session)
        open_.discard(id(session))

    monkeypatch.setattr(BuiltinSession, "__init__", opened)
    monkeypatch.setattr(BuiltinSession, "close", closed)
    assert gated(QWEN).code == 0
    assert 2 < most[0] <= 9


def test_row_exact_is_passed_on(gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --row-exact every session is asked for it, and the probe has to hold."""
    seen: list[bool] = []
    start = BuiltinSession.__init__

    def noted(session: Any, *parts: Any) -> None:
        seen.extend(part.row_exact for part in parts if isinstance(part, Options))
        start(session, *parts)

    monkeypatch.setattr(BuiltinSession, "__init__", noted)
    done = gated(QWEN, "--row-exact", k=1)
    assert done.code == 0, done.out
    assert seen and all(seen)
    levels = {case.id: case.level for case in done.report.cases}
    assert levels["control.rows.checkpoint"] is Level.MUST
    assert "row by row" in done.out


def test_row_exact_has_to_hold(tmp_path: Path, gated: Gate) -> None:
    """Whoever offers it and rounds otherwise all the same is broken; whoever keeps to it is not."""
    folder = write_zoo("gdn", tmp_path / "gdn", mx.bfloat16)
    small = {"k": 1, "max-tokens": 6}
    kept = ("--runtime", "tests.gate.runtimes:other_rounding", "--row-exact")
    assert gated(folder, *kept, **small).code == 0
    done = gated(folder, "--runtime", "tests.gate.runtimes:ignores_row_exact", kept[2], **small)
    assert done.code == 1
    probe = next(r for r in done.report.results if r.case == "control.rows.checkpoint")
    assert probe.failure is not None
    said = "a pass of 2 rows rounds otherwise than 2 steps do here, in spite of --row-exact"
    assert said in probe.failure.message


def test_loaded_once(tmp_path: Path, gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is in memory once, however it is named."""
    size = (copied(QWEN, tmp_path / "folder") / "model.safetensors").stat().st_size
    monkeypatch.chdir(tmp_path)
    before = mx.get_active_memory()
    done = gated(Path("folder"), k=1, **{"max-tokens": 5})
    assert done.code == 0
    assert 0.9 * size < done.report.memory["loaded"] - before < 1.5 * size
