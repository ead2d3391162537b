"""Where implementations read a formula differently, the reference takes the specified reading.

The reference model is changed to the other reading. It then is as far from what is stored as
transformers' own model was with the same change, which `docs/oracle.md` lists.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from reference_models import attention, checkpoint, gated_delta, mtp
from reference_models.config import HybridConfig
from reference_models.mtp import MTPHead
from reference_models.norms import l2_norm, rms_norm
from reference_models.pooled import PooledIndex
from reference_models.rope import rotate
from reference_models.zoo import ZOO
from tests.oracle import reference
from tests.oracle.cells import selected_by_cells
from tests.oracle.compare import BOUND, SLACK, distance
from tests.oracle.models import SMALL_KEYS, write_model
from tests.oracle.stored import read

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def apart(tmp_path: Path) -> Callable[[str, str], float]:
    """Return a function from a model and a quantity to the reference's distance in it."""

    def measure(model: str, name: str) -> float:
        entry, due = read(model)
        target, head = checkpoint.read(write_model(model, tmp_path))
        found = reference.trajectory(target, head, entry.tokens, entry.drafts)
        return distance(name, found[name], due[name])

    return measure


Apart = Callable[[str, str], float]


def _listed(model: str, choice: str) -> float:
    return read(model)[0].choices[choice]


def _in_the_mean(x: mx.array) -> mx.array:
    wide = x.astype(mx.float32)
    return wide * mx.rsqrt(wide.square().sum(axis=-1, keepdims=True) + 1e-6 * x.shape[-1])


def _by_cells(self: Any, scores: mx.array, positions: mx.array, length: int) -> mx.array:
    config: HybridConfig = self._config
    sizes = (config.indexer_budget, config.indexer_compress_ratio)
    queries = zip(reference.numbers(scores[0]), reference.numbers(positions), strict=True)
    rows = [selected_by_cells(row, int(at), length, *sizes) for row, at in queries]
    return mx.array(np.stack(rows))[None, None]


def test_l2norm(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epsilon of the l2 norm is added to the sum; added to the mean, small keys change."""
    monkeypatch.setattr(gated_delta, "l2_norm", _in_the_mean)
    listed = _listed(SMALL_KEYS, "l2norm")
    assert listed > 0.1
    assert apart(SMALL_KEYS, "logits.steps") == pytest.approx(listed, rel=1e-3)


def test_head_norm(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's hidden is normalised over all streams at once, not over each."""

    def per_stream(x: mx.array, weight: mx.array, eps: float) -> mx.array:
        return rms_norm(x, weight, eps, groups=x.shape[-1] // 32)

    monkeypatch.setattr(mtp, "rms_norm", per_stream)
    listed = _listed("flash-next", "head_norm")
    assert listed > 0.01
    assert apart("flash-next", "head.logits") == pytest.approx(listed, rel=1e-3)


@pytest.mark.parametrize("model", ["qsa", "flash-next"])
def test_cells(apart: Apart, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """Whole blocks are selected, and not as many cells as fit."""
    monkeypatch.setattr(PooledIndex, "_select", _by_cells)
    listed = _listed(model, "cells")
    assert listed > 0.1
    assert apart(model, "logits.steps") == pytest.approx(listed, rel=1e-3)


def _other_tokens(name: str) -> int:
    """How many tokens of a golden the reference model, in one pass, now chooses otherwise."""
    record = json.loads((GOLDEN / "tokens" / f"{name}.json").read_text())
    target, _ = checkpoint.read(GOLDEN / "checkpoints" / name)
    others = 0
    for vector in record["vectors"]:
        prompt, stream = vector["prompt"], vector["stream"]
        logits = reference.numbers(target(mx.array([prompt + stream[:-1]]))[0])
        others += int((logits[len(prompt) - 1 :].argmax(-1) != np.array(stream)).sum())
    return others


@pytest.mark.parametrize("model", ZOO)
def test_which_choices_golden_tokens_tell(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epsilon of the l2 norm moves none of them; selection over cells does where it is."""
    name = f"{model}-float32"
    assert _other_tokens(name) == 0
    monkeypatch.setattr(gated_delta, "l2_norm", _in_the_mean)
    assert _other_tokens(name) == 0
    monkeypatch.setattr(gated_delta, "l2_norm", l2_norm)
    monkeypatch.setattr(PooledIndex, "_select", _by_cells)
    assert bool(_other_tokens(name)) == (model in ("qsa", "flash-next"))


def test_cells_differ_only_with_a_short_tail() -> None:
    """Cells let in part of one more block unless the tail is as long as it can be."""
    _, due = read("qsa")
    scores, selected = due["layers.1.scores"], due["layers.1.selected"]
    differing = {
        p % 4
        for p in range(len(scores))
        if not np.array_equal(selected_by_cells(scores[p], p, len(scores), 8, 4), selected[p])
    }
    assert differing == {0, 1, 3}  # tails of 1, 2 and 0 tokens; one of 3 fills the width


def test_head_rope(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting the head's positions from one moves its keys, and its logits by rounding alone."""
    due = read("gdn")[0].sensitivity
    inside: list[MTPHead] = []
    plain = MTPHead.__call__

    def entered(self: MTPHead, *args: Any) -> tuple[mx.array, mx.array]:
        inside.append(self)
        out = plain(self, *args)
        mx.eval(out)
        inside.pop()
        return out

    def one_further(x: mx.array, positions: mx.array, *rest: Any) -> mx.array:
        return rotate(x, positions + 1 if inside else positions, *rest)

    monkeypatch.setattr(MTPHead, "__call__", entered)
    monkeypatch.setattr(attention, "rotate", one_further)
    assert _listed("gdn", "head_rope") < 1e-12
    assert apart("gdn", "head.0.keys") > 0.1
    assert apart("gdn", "head.logits") <= max(BOUND, SLACK * due["head.logits"])
    assert apart("gdn", "layers.2.keys") < 1e-3  # the trunk counts as ever


@pytest.mark.parametrize("layer", ["qsa:layers.1", "flash-next:layers.3"])
def test_a_query_may_lose_its_own_token(layer: str) -> None:
    """A query that completes a block which is not selected does not see its own token."""
    model, name = layer.split(":")
    _, due = read(model)
    own = due[f"{name}.selected"].diagonal()
    lost = np.flatnonzero(~own)
    assert lost.size
    assert set((lost + 1) % 4) == {0}
