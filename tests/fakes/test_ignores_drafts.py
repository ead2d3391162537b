"""A runtime that decodes plainly gets no pass for its right tokens."""

from collections.abc import Callable

import pytest

from conformance.rewind.test_state import test_one_round as state_case
from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.protocol import Runtime
from tests.fakes.ignores_drafts import IgnoresDrafts

Make = Callable[[Runtime], Oracles]


def test_right_drafts_that_are_not_taken_fail(oracles_of: Make) -> None:
    """A round that was given right drafts and emits one token fails."""
    cell = Cell("attn", "tape", 3, 2, "float32", 4)
    with pytest.raises(AssertionError, match="round 1: emitted 1 tokens, K=0 emits 3"):
        state_case(oracles_of(IgnoresDrafts()), cell, Witness())


def test_plain_stream_is_inconclusive(oracles_of: Make) -> None:
    """The right stream without a single verified draft proves nothing."""
    cell = Cell("attn", "tape", 3, None, "float32", 4)
    with pytest.raises(Inconclusive, match="accepted 0 of at least 1"):
        stream_case(oracles_of(IgnoresDrafts()), cell, Witness())
