"""The process of one turn, run here."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.slowing import slowed
from mtp_decoder import CheckpointError
from mtp_decoder.bench import worker
from mtp_decoder.bench.rows import Run

MEASURED = {field.name for field in fields(Run)} - {
    *("block", "model", "turn", "warm_up", "arm", "k", "strategy", "experts", "load"),
}


@pytest.fixture
def spec(checkpoint: Callable[..., Path]) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a specification for a zoo model."""

    def make(name: str = "gdn", **other: Any) -> dict[str, Any]:
        usual: dict[str, Any] = {
            **{"folder": str(checkpoint(name)), "loader": None, "expert_budget": None},
            **{"runtime": "mtp-decoder", "k": 0, "strategy": "tape", "device": None},
            **{"tokens": 12, "warm_up": 3, "repeats": 1, "prompts": {"code": [5, 9, 2, 7]}},
            **{"beside": [], "slice_tokens": None},
        }
        return {**usual, **other}

    return make


def test_arms_decode_the_same_tokens(spec: Callable[..., dict[str, Any]]) -> None:
    """With drafts or without, by mlx-lm or by this decoder: one prompt, one digest."""
    arms = ({}, {"k": 3}, {"k": 3, "strategy": "replay"}, {"runtime": "mlx-lm"})
    rows = [row for arm in arms for row in worker.run(spec(**arm))]
    assert len({row["tokens_digest"] for row in rows}) == 1
    assert [row["tokens"] for row in rows] == [12] * 4
    assert all(set(row) == MEASURED for row in rows)


STOCK = {"runtime": "mlx-lm", "k": 0, "strategy": "", "expert_budget": None}


@pytest.mark.parametrize("slice_tokens", [1, 5, 40])
def test_arms_in_turns(spec: Callable[..., dict[str, Any]], slice_tokens: int) -> None:
    """In one process arms decode what they decode alone, each row with seconds of its own."""
    ours = {"runtime": "mtp-decoder", "k": 3, "strategy": "tape", "expert_budget": None}
    made = spec(beside=[STOCK, ours], slice_tokens=slice_tokens, repeats=2)
    rows = list(worker.run(made))
    apart = [*worker.run(spec(repeats=2)), *worker.run(spec(**ours, repeats=2))]
    assert [row["repeat"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert {row["tokens_digest"] for row in rows} == {row["tokens_digest"] for row in apart}
    assert [len(row["drafted_by_depth"]) for row in rows] == [0, 0, 3] * 2
    assert min(row["decode_seconds"] for row in rows) > 0
    assert all("peak" not in row["bytes"] for row in rows)  # of one arm nobody could tell


class Slow:
    """Submits work on its own stream as it hands out each token, and leaves it there."""

    def __init__(self, steps: int) -> None:
        self._steps, self.waits = steps, 0
        self._stream = mx.new_stream(mx.default_device())

    def start(self, prompt: Sequence[int], tokens: int) -> worker.Started:
        """So many tokens."""
        return worker.Started(self._emitted(tokens), lambda done: worker.measured(prompt, done))

    def wait(self) -> None:
        """Counts."""
        self.waits += 1
        mx.synchronize(self._stream)

    def _emitted(self, tokens: int) -> Iterator[int]:
        for token in range(tokens):
            with mx.stream(self._stream):
                mx.async_eval(slowed([mx.zeros(1)], self._steps))
            yield token


def test_a_slice_is_charged_with_what_it_began() -> None:
    """Work an arm leaves behind at the end of its slice is its own, not the next arm's."""
    slow, quick = Slow(4), Slow(0)
    found = worker.in_turns([slow, quick], [1], 9, 2)
    assert [row.tokens for row in found] == [9, 9]
    assert slow.waits == quick.waits == 1 + 4
    assert found[1].decode_seconds < found[0].decode_seconds / 2


def test_what_drafts_leave(spec: Callable[..., dict[str, Any]]) -> None:
    """An arm with drafts counts rounds, drafts by depth, rewinds, and bytes of its strategy."""
    tape, snapshot = (
        next(iter(worker.run(spec(k=3, strategy=name, tokens=30)))) for name in ("tape", "snapshot")
    )
    assert len(tape["drafted_by_depth"]) == 3
    assert tape["rounds"] >= tape["drafted_by_depth"][0] > tape["accepted_by_depth"][0]
    assert tape["rewinds"] > 0
    assert snapshot["bytes"]["remembered"] > 5 * tape["bytes"]["remembered"] > 0
    assert tape["bytes"]["peak"] > 0
    assert set(tape["seconds"]) == {"prefill", "draft", "verify", "accept", "rewind"}


def test_every_prompt_as_often_as_asked(spec: Callable[..., dict[str, Any]]) -> None:
    """Rows come prompt by prompt, repeat by repeat."""
    made = spec(repeats=2, warm_up=0, prompts={"code": [5, 9], "prose": [7]})
    rows = list(worker.run(made))
    order = [(row["workload"], row["repeat"], row["prompt_tokens"]) for row in rows]
    assert order == [("code", 0, 2), ("code", 1, 2), ("prose", 0, 1), ("prose", 1, 1)]


@pytest.mark.parametrize("loader", [None, "reference_models.checkpoint:read"])
def test_experts_on_disk(spec: Callable[..., dict[str, Any]], loader: str | None) -> None:
    """What was read is counted for each run by itself; the tokens are those of memory."""
    made = {"name": "gdn-moe", "k": 2, "loader": loader, "repeats": 2}
    memory, _ = worker.run(spec(**made))
    rows = list(worker.run(spec(**made, expert_budget=20000)))
    assert memory["experts_read"] == {}
    for row in rows:
        read = row["experts_read"]
        assert row["tokens_digest"] == memory["tokens_digest"]
        assert read["bytes_read"] == read["reads"] * read["expert_bytes"] > 0
        assert read["hits"] + read["reads"] >= read["requests"] > 0
        assert read["requests"] < 12 * 8 * 6 * 3


def test_a_process(
    spec: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It reads one specification and prints one line a run."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(spec(k=2, repeats=2))))
    assert worker.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["repeat"] for line in lines] == [0, 1]


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ({"runtime": "mlx-lm", "k": 2}, "mlx-lm decodes its own classes, with K=0"),
        ({"folder": "/no/such"}, "/no/such has no config.json"),
        ({"name": "gdn-moe", "expert_budget": 10}, "holds no expert"),
    ],
)
def test_says_why_not(
    spec: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arm: dict[str, Any],
    message: str,
) -> None:
    """What cannot be decoded is said in one line, with exit code 2."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(spec(**arm))))
    assert worker.main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_folder_that_is_none(spec: Callable[..., dict[str, Any]]) -> None:
    """The error is the decoder's own."""
    with pytest.raises(CheckpointError):
        list(worker.run(spec(folder="/no/such")))
