"""Every answer of the gate, from a decoder that deserves it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.verdict import Verdict
from mtp_decoder.rewind.recurrent import RecurrentUndo
from reference_models.checkpoint import write_zoo
from reference_models.prompts import prompt_tokens
from tests.faults.editing import Rewind, wrap_undos
from tests.gate.conftest import Gated

Folders = Callable[[str], Path]
Gate = Callable[..., Gated]


def _leave_window(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
    """Layer 1's convolution window stays where the verify pass ended."""
    if not isinstance(undo, RecurrentUndo) or index != 1:
        return None

    def faulty(keep: int) -> None:
        window = undo.cache[0]
        rewind(keep)
        undo.cache[0] = window

    return faulty


def test_broken(folders: Folders, gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution window that is not rewound is named: layer, component, round, and why."""
    wrap_undos(monkeypatch, _leave_window)
    done = gated(folders("plain"))
    assert done.code == 1
    assert done.answer.startswith("BROKEN: layer layers.1, component conv, round 1; rewind.state")
    assert "layer 1 convolution window is" in done.answer
    assert "it was not rewound" in done.answer
    command = done.out.splitlines()[done.out.splitlines().index(done.answer) + 1]
    assert re.match(
        r"  mtp-conformance gate --model \S+ --k 2 --prompts \S+ .*--device cpu --mx-compile off",
        command,
    )


def test_near_ties(tmp_path: Path, gated: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right decoder that rounds otherwise parts at a proven tie: how many, how near, where."""
    folder = write_zoo("gdn-mtp2", tmp_path / "gdn-mtp2", mx.bfloat16)
    prompts = tmp_path / "tie.jsonl"
    prompts.write_text(json.dumps(prompt_tokens(3)))
    runtime = ("--runtime", "tests.gate.runtimes:other_rounding")
    done = gated(folder, *runtime, prompts=prompts, **{"max-tokens": 8})
    assert done.code == 3
    assert done.answer == (
        "NEAR-TIES ONLY: 2 of 2 streams leave K=0's, at 1 place, each where two logits are proven "
        "to tie: at most 0.0625 (2 ULP) apart"
    )
    assert "near-tie   K=2 after line-1: emitted token 6 is 52, K=0 emits 156" in done.out
    assert done.report.counts[Verdict.NEAR_TIE] == 2


def test_inconclusive(folders: Folders, gated: Gate) -> None:
    """A decoder whose K=0 does not repeat itself proves nothing, and is asked nothing more."""
    done = gated(folders("plain"), "--runtime", "tests.gate.runtimes:drifting")
    assert done.code == 3
    assert done.answer.startswith("INCONCLUSIVE: K=0 run twice gives two results: ")
    assert [result.case for result in done.report.results] == ["control.determinism.checkpoint"]


def test_without_state(folders: Folders, gated: Gate) -> None:
    """A runtime that shows tokens alone is lossless in tokens, and it is said what is not known."""
    done = gated(folders("plain"), "--runtime", "tests.gate.runtimes:stream_alone")
    assert done.code == 0
    assert done.answer.endswith("the runtime shows no state, so nothing is known of it")
    assert "not shown" in done.out
