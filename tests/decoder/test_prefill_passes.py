"""Session: how a prompt is cut into passes."""

import mlx.core as mx
import pytest

from mtp_decoder import Session
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

WIDTHS = {1: [1] * 13, 5: [5, 5, 2, 1], 6: [6, 6, 1], 12: [12, 1], 2048: [12, 1]}


@pytest.mark.parametrize("step", WIDTHS)
def test_widths(zoo: Zoo, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Passes are `prefill_step_size` wide, and the last token runs alone."""
    target, head = zoo("gdn")
    embed, widths = target.embed, list[int]()

    def watch(tokens: mx.array) -> mx.array:
        widths.append(tokens.shape[1])
        return embed(tokens)

    monkeypatch.setattr(target, "embed", watch)
    Session(target, head, prefill_step_size=step).prefill(PROMPT)
    assert widths == WIDTHS[step]
