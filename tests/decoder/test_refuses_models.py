"""Refused input: things that are no model."""

from collections.abc import Callable
from typing import Any

import pytest

from mtp_decoder import DecoderError, Session, generate_step
from mtp_decoder.qwen.load import Loaded
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

Start = Callable[..., Any]


def _step(*models: Any) -> Any:
    return generate_step(PROMPT, *models)


@pytest.mark.parametrize("start", [_step, Session])
def test_a_model_of_mlx_lm(qwen: Callable[[str], Loaded], start: Start) -> None:
    """mlx-lm's own model is no target; the message names what makes one of it."""
    with pytest.raises(DecoderError, match=r"mtp_decoder\.qwen\.target\.QwenTarget") as refusal:
        start(qwen("gdn").target.model)
    assert "mlx_lm.models.qwen3_5.Model is no target: it has no vocab_size" in str(refusal.value)


@pytest.mark.parametrize("start", [_step, Session])
def test_a_pair(qwen: Callable[[str], Loaded], start: Start) -> None:
    """What `load` returns has to be taken apart."""
    with pytest.raises(DecoderError, match="Loaded is no target"):
        start(qwen("gdn"))


@pytest.mark.parametrize("start", [_step, Session])
def test_no_head(zoo: Zoo, start: Start) -> None:
    """A head that lacks a part of one is refused too."""
    with pytest.raises(DecoderError, match="object is no head: it has no layers, make_cache"):
        start(zoo("gdn")[0], object())
