"""Answers no decoder may give are refused with a sentence for the adapter's author."""

import math
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance import answers
from mtp_conformance.answers import BadAnswer
from mtp_conformance.protocol import Capability, Description, Generated, Outcome

CARD = Description("mine", {"mlx": "1"}, frozenset({Capability.STREAM}))
ROWS = mx.array([[0.0, 2.0, 1.0], [3.0, 3.0, 1.0]])


def test_good_answers_pass() -> None:
    """What the protocol asks for is returned as it came."""
    assert answers.description(CARD) is CARD
    assert answers.outcome(Outcome(1, (1, 0)), 2, "round").accepted == 1
    assert answers.generated(Generated((1, 2), 3, 1), 3).tokens == (1, 2)
    assert answers.logits(ROWS, 2, 3, (1, 0)) is ROWS
    named = {"layers.0.keys_2": ROWS, "head.frontier.hidden": mx.array(1)}
    assert answers.state(named) == named
    assert answers.timings({"draft": 0.5}) == {"draft": 0.5}


CARDS: dict[str, tuple[Any, str]] = {
    "no card": ({}, "describe returned a dict, not a Description"),
    "list": (replace(CARD, capabilities=["stream"]), "no frozenset of Capability"),  # type: ignore[arg-type]
    "text": (replace(CARD, strategies="tape"), "strategies is no tuple of texts"),  # type: ignore[arg-type]
    "comma": (replace(CARD, strategies=("a,b",)), "use letters, digits"),
    "twice": (replace(CARD, strategies=("a", "a")), "name each way of rewinding once"),
    "none": (replace(CARD, strategies=()), "name each way of rewinding once"),
    "rows": (replace(CARD, head_rows=("both",)), "give 'draft', 'target' or both"),
    "depth": (replace(CARD, max_draft_tokens=0), "no number from 1"),
    "stop": (replace(CARD, after_stop="soon"), "after_stop is 'soon'"),
    "name": (replace(CARD, name=""), "name is no text"),
}


@pytest.mark.parametrize(("card", "said"), CARDS.values(), ids=CARDS)
def test_descriptions(card: Any, said: str) -> None:
    """The field is named."""
    with pytest.raises(BadAnswer, match=said):
        answers.description(card)


OUTCOMES: dict[str, tuple[Any, str]] = {
    "nothing": (None, "round returned a NoneType, not an Outcome"),
    "text": (Outcome("1", (1, 2)), "accepted is '1', no whole number"),  # type: ignore[arg-type]
    "flag": (Outcome(True, (1, 2)), "accepted is True"),
    "many": (Outcome(3, (1, 2, 3, 4)), "accepted 3 of 2 drafts"),
    "short": (Outcome(1, (1,)), "emitted 1 tokens with 1 drafts accepted; 2 are due"),
    "float": (Outcome(0, (1.0,)), "tokens are not all ints"),  # type: ignore[arg-type]
    "word": (Outcome(0, "a"), "tokens is a str"),  # type: ignore[arg-type]
    "negative": (Outcome(0, (-1,)), "negative token ids"),
}


@pytest.mark.parametrize(("outcome", "said"), OUTCOMES.values(), ids=OUTCOMES)
def test_outcomes(outcome: Any, said: str) -> None:
    """What is wrong with a round is said."""
    with pytest.raises(BadAnswer, match=said):
        answers.outcome(outcome, 2, "round")


GENERATED: dict[str, tuple[Any, str]] = {
    "list": ([1, 2], "generate returned a list"),
    "none": (Generated((), 0, 0), "emitted no token"),
    "counts": (Generated((1,), 1, 2), "says 2 of 1 accepted"),
    "text": (Generated((1,), "1", 0), "no whole numbers"),  # type: ignore[arg-type]
    "k0": (Generated((1,), 1, 0), "drafted 1 tokens with K=0"),
}


@pytest.mark.parametrize(("made", "said"), GENERATED.values(), ids=GENERATED)
def test_generated(made: Any, said: str) -> None:
    """What is wrong with a stream is said."""
    with pytest.raises(BadAnswer, match=said):
        answers.generated(made, 0)


LOGITS: dict[str, tuple[Any, str]] = {
    "none": (None, "claims to give logits and gave none"),
    "list": ([[1.0]], "not an mlx array"),
    "ints": (ROWS.astype(mx.int32), "no floating-point type"),
    "rows": (ROWS[:1], r"are \(1, 3\), not \(2, 3\)"),
    "scalar": (mx.array(1.0), r"are \(\), not \(2, 3\)"),
    "nan": (mx.where(ROWS > 2, math.nan, ROWS), "hold NaN"),
    "inf": (mx.where(ROWS > 2, math.inf, ROWS), "hold infinity"),
    "other": (ROWS[::-1], "row 0 of the logits is highest at token 0, and 1 was emitted"),
}


@pytest.mark.parametrize(("logits", "said"), LOGITS.values(), ids=LOGITS)
def test_logits(logits: Any, said: str) -> None:
    """Shape, type, finiteness, and the token each row chose."""
    with pytest.raises(BadAnswer, match=said):
        answers.logits(logits, 2, 3, (1, 0))


def test_masked_logits_are_finite_enough() -> None:
    """Minus infinity is how a mask says no."""
    assert answers.logits(mx.array([[-math.inf, 1.0]]), 1, None, (1,)).shape == (1, 2)


STATES: dict[str, tuple[Any, str]] = {
    "list": ([], "state returned a list"),
    "empty": ({}, "or leave `state` out of the capabilities"),
    "name": ({"Layer0": ROWS}, "names are layers.I.component"),
    "number": ({"layers.0.keys": 1.0}, "is a float, not an array"),
    "nan": ({"layers.0.keys": ROWS * math.nan, "layers.1.keys": ROWS}, "in layers.0.keys$"),
    "inf": ({"layers.1.keys": ROWS / 0}, "NaN or infinity in layers.1.keys"),
}


@pytest.mark.parametrize(("state", "said"), STATES.values(), ids=STATES)
def test_states(state: Any, said: str) -> None:
    """Names, arrays, finite numbers."""
    with pytest.raises(BadAnswer, match=said):
        answers.state(state)


TIMINGS: dict[str, tuple[Any, str]] = {
    "none": (None, "timings returned a NoneType"),
    "empty": ({}, "timings has no phase"),
    "text": ({"draft": "fast"}, "is no phase with seconds"),
    "negative": ({"draft": -1.0}, "says -1.0 seconds for draft"),
    "nan": ({"draft": math.nan}, "says nan seconds"),
}


@pytest.mark.parametrize(("timings", "said"), TIMINGS.values(), ids=TIMINGS)
def test_timings(timings: Any, said: str) -> None:
    """Seconds by phase, and at least one phase."""
    with pytest.raises(BadAnswer, match=said):
        answers.timings(timings)


DEPTHS: dict[str, tuple[Any, str]] = {
    "none": (None, "depths returned a NoneType"),
    "flat": ([1, 2], "not a list of lists"),
    "rounds": ([[1], [0]], r"depths chose for \[1, 1\] rounds, not \[2, 1\]"),
    "many": ([[1, 4], [0]], "chose 4, where 0 to 3"),
    "negative": ([[1, -1], [0]], "chose -1, where 0 to 3"),
    "float": ([[1, 0.5], [0]], "chose 0.5, where 0 to 3"),
}


@pytest.mark.parametrize(("depths", "said"), DEPTHS.values(), ids=DEPTHS)
def test_depths(depths: Any, said: str) -> None:
    """One whole number a round, within what is possible."""
    with pytest.raises(BadAnswer, match=said):
        answers.depths(depths, [2, 1], 3)
    assert answers.depths([(0, 3), [1]], [2, 1], 3) == [[0, 3], [1]]


def test_text_and_logprobs() -> None:
    """Text is a str, log-probabilities are numbers."""
    with pytest.raises(BadAnswer, match="text is a bytes"):
        answers.generated(Generated((1,), 0, 0, text=b"a"), 1)  # type: ignore[arg-type]
    with pytest.raises(BadAnswer, match="logprobs are no numbers"):
        answers.generated(Generated((1,), 0, 0, logprobs=("a",)), 1)  # type: ignore[arg-type]


def test_session() -> None:
    """Something that prefills."""
    with pytest.raises(BadAnswer, match="fork returned a NoneType, not a session"):
        answers.session(None, "fork")
