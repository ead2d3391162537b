"""The K ladder climbs what a runtime has, and never loses a divergence that was found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession, zoo_materials
from mtp_conformance.near_tie import StreamDiffers
from mtp_conformance.protocol import Description, Generated, Options


class WrongAtOne(BuiltinSession):
    """Token 6 is wrong with drafts, and more than one draft is refused, in either way."""

    refusal = "unsupported: one draft at most"

    def generate(self, tokens: Sequence[int], **arguments: Any) -> Generated:
        """See the class."""
        if arguments["num_draft_tokens"] > 1:
            raise ValueError(self.refusal)
        made = super().generate(tokens, **arguments)
        if not arguments["num_draft_tokens"]:
            return made
        wrong = [(t + 1) % 256 if i == 6 else t for i, t in enumerate(made.tokens)]
        return replace(made, tokens=tuple(wrong))


class OneDraft(BuiltinRuntime):
    """A runtime of K=1."""

    most = 1

    def describe(self) -> Description:
        """As the builtin runtime, drafting less."""
        return replace(super().describe(), max_draft_tokens=self.most)

    def open(self, model: str, checkpoint: Path, options: Options) -> WrongAtOne:
        """As the builtin runtime."""
        return WrongAtOne(*super().open(model, checkpoint, options).parts)


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[OneDraft], None]:
    """Run the stream case at K=1."""
    cell = Cell("gdn", "tape", 1, None, "float32", 5)

    def run(runtime: OneDraft) -> None:
        stream_case(Oracles(runtime, zoo_materials(tmp_path)), cell, Witness())

    return run


def test_ladder_ends_at_the_runtimes_depth(judge: Callable[[OneDraft], None]) -> None:
    """A runtime of K=1 is asked for K=1 alone, and fails by name of the token."""
    with pytest.raises(StreamDiffers, match="emitted token 6") as caught:
        judge(OneDraft())
    assert caught.value.ladder == ((1, 6),)


@pytest.mark.parametrize("refusal", ["unsupported: one draft at most", "K must be 1"])
def test_rung_that_breaks_is_left_out(
    refusal: str, judge: Callable[[OneDraft], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deeper K that is refused, or errs, takes nothing from what K=1 showed."""
    monkeypatch.setattr(OneDraft, "most", 8)
    monkeypatch.setattr(WrongAtOne, "refusal", refusal)
    with pytest.raises(StreamDiffers, match="emitted token 6") as caught:
        judge(OneDraft())
    assert caught.value.ladder == ((1, 6),)
