"""Cells of the trained checkpoints: what makes them worth running happens in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import mlx.core as mx
import pytest

from conformance.stream import test_greedy
from conformance.stream.test_greedy import test_guessed_drafts as guessed_drafts
from conformance.stream.test_own_drafts import LENGTHS
from conformance.stream.test_own_drafts import test_own_drafts as own_drafts
from mtp_conformance import Cell, Inconclusive, Options, Oracles, Witness, near_tie
from mtp_conformance.adapters.builtin import make_runtime, zoo_materials
from mtp_conformance.grid import TRAINED_LENGTH, TRAINED_MODELS, TRAINED_STARTS
from mtp_conformance.group import GroupKey
from mtp_conformance.near_tie import MOST_ULPS, StreamDiffers, runners_up
from mtp_decoder import session
from mtp_decoder.rules import Greedy

pytestmark = pytest.mark.xdist_group("trained-cells")  # models and streams are shared
PROSE = TRAINED_STARTS[1]


def trained(model: str, start: int, k: int = 3) -> Cell:
    """A cell of K drafts."""
    return Cell(model, "tape", k, None, "bfloat16", TRAINED_LENGTH, (("start", start),))


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Oracles:
    """The builtin decoder, and models to decode."""
    return Oracles(make_runtime(), zoo_materials(tmp_path_factory.mktemp("models")))


def test_prompts_are_code_and_prose(oracles: Oracles) -> None:
    """A cell's start says where in the text its prompt begins."""
    code, prose = (bytes(t % 256 for t in _prompt(oracles, s)) for s in TRAINED_STARTS)
    assert code.endswith(b':\n    """')
    assert b"ferry" in prose


def _prompt(oracles: Oracles, start: int) -> Sequence[int]:
    return oracles.group(trained("qwen3_5-bytes", start)).prompt


@pytest.mark.parametrize("model", TRAINED_MODELS)
def test_own_drafts_often_stand(oracles: Oracles, model: str) -> None:
    """Of the head's own drafts a third and more stand, and some do not."""
    witness = Witness()
    own_drafts(oracles, trained(model, PROSE), witness)
    counts = witness.as_dict()
    assert counts["accepted"] >= counts["drafted"] / 3
    assert counts["rejected"]


@pytest.mark.parametrize("model", TRAINED_MODELS)
def test_own_drafts_where_the_text_loops(model: str, tmp_path: Path) -> None:
    """After a prompt that ends in a loop the head predicts, rejects come from other prompts."""
    oracles = Oracles(make_runtime(), zoo_materials(tmp_path, 8))
    cell, alone, whole = trained(model, TRAINED_STARTS[0], 1), Witness(), Witness()
    group, length = oracles.group(cell), max(LENGTHS)
    made = group.open(Options()).generate(group.prompt, num_draft_tokens=1, max_tokens=length)
    alone.add(**made.engagement)
    assert alone.as_dict()["drafted"] >= length // 2 - 1
    with pytest.raises(Inconclusive, match=r"rejected 0 of at least 1$"):
        alone.require(accepted=1, rejected=1)
    own_drafts(oracles, cell, whole)
    assert whole.as_dict()["compared"] > sum(LENGTHS)


def test_runners_up(oracles: Oracles) -> None:
    """The nearest race comes first, and each runner-up is the second of its row."""
    group = oracles.fresh_group(GroupKey("qwen3_5-bytes", "bfloat16", 12))
    races = runners_up(group, 20)
    assert sorted(race.index for race in races) == list(range(1, 20))
    assert [race.ulps for race in races] == sorted(race.ulps for race in races)
    for race in races:
        row = group.plain_logits(race.index)[0].astype(mx.float32)
        others = cast("list[float]", row.tolist())
        best, second = others[race.expected], others[race.token]
        assert race.expected == group.stream(20)[race.index] != race.token
        assert sorted(others)[-2:] == [second, best]
        assert race.margin == best - second


def test_accepting_what_nearly_ties_is_noticed(
    oracles: Oracles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder that lets a draft stand for being nearly as likely decodes other tokens."""
    monkeypatch.setattr(test_greedy, "TRAINED_LENGTH", 40)  # a short one, and no other K
    monkeypatch.setattr(near_tie, "LADDER", ())
    witness = Witness()
    guessed_drafts(oracles, trained("qwen3_5-bytes", PROSE), witness)
    assert witness.as_dict()["near"]
    judge = Greedy.judge

    def lenient(
        self: Greedy,
        drafts: Sequence[int],
        logits: mx.array,
        position: int,
        laws: mx.array | None,
    ) -> list[int]:
        best = logits.max(-1, keepdims=True)
        near = logits >= best - mx.abs(best) * (MOST_ULPS * 2.0**-8)
        given = mx.arange(logits.shape[-1]) == mx.array([*drafts, -1])[:, None]
        return judge(self, drafts, mx.where(near & given, mx.inf, logits), position, laws)

    monkeypatch.setattr(Greedy, "judge", lenient)
    monkeypatch.setattr(session, "verdict", lambda *_: None)  # what is told has seen no draft
    monkeypatch.setattr(oracles, "condemns", lambda *_: True)  # else after a score of draws
    with pytest.raises(StreamDiffers, match="row-exact here, so nothing excuses it"):
        guessed_drafts(oracles, trained("qwen3_5-bytes", PROSE), Witness())
