"""Refused input: temperatures, cuts, seeds and ways of accepting."""

import math
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import DecoderError, Sampling, Session, generate_step
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"temp": -0.1}, "temp must be 0 or more, not -0.1"),
    ({"temp": math.nan}, "temp must be 0 or more, not nan"),
    ({"temp": math.inf}, "temp must be 0 or more, not inf"),
    ({"top_p": 1.1}, "top_p must be in 0..1, not 1.1"),
    ({"top_p": -0.1}, "top_p must be in 0..1, not -0.1"),
    ({"min_p": 2}, "min_p must be in 0..1, not 2"),
    ({"top_k": -1}, "top_k must be a whole number from 0, not -1"),
    ({"top_k": 2.5}, "top_k must be a whole number from 0, not 2.5"),
    ({"seed": -1}, "seed must be a whole number from 0, not -1"),
    ({"seed": 2**64}, "seed must be a whole number from 0, not 18446744073709551616"),
    ({"acceptance": "typical"}, "acceptance is one of match, rejection, not 'typical'"),
]


@pytest.mark.parametrize(("option", "message"), REFUSED)
def test_a_value_without_meaning(zoo: Zoo, option: dict[str, Any], message: str) -> None:
    """A value that means nothing is refused at the call, by name."""
    with pytest.raises(DecoderError, match=message):
        generate_step(PROMPT, *zoo("gdn"), **option)


@pytest.mark.parametrize("option", [{"temp": 0.5}, {"acceptance": "rejection"}])
def test_a_sampler_and_a_temperature(zoo: Zoo, option: dict[str, Any]) -> None:
    """A sampler beside a temperature, or beside rejection, which needs its law, is refused."""
    with pytest.raises(DecoderError, match="give a sampler, or temp and acceptance, not both"):
        generate_step(PROMPT, *zoo("gdn"), sampler=lambda x: mx.argmax(x, axis=-1), **option)


def test_no_token_mask(zoo: Zoo) -> None:
    """A token mask that lacks a part of one is refused, and told what it needs."""
    mask: Any = object()
    with pytest.raises(DecoderError, match="object is no token mask: it needs allowed, advance"):
        Session(*zoo("gdn"), token_mask=mask)


def test_a_name_is_enough() -> None:
    """A way of accepting given by its name is that one."""
    assert Sampling(acceptance="rejection") == Sampling(acceptance="rejection")
    assert Sampling(acceptance="rejection").acceptance != Sampling().acceptance
