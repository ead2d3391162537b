"""Refused: values and answers of a type that nothing can be done with, each told what to do."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import DecoderError, Session, generate_step
from mtp_decoder.generate import Emission
from mtp_decoder.policy import Fixed
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Source

CALLED: list[tuple[dict[str, Any], str]] = [
    ({"temp": "hot"}, "temp must be 0 or more, not 'hot'"),
    ({"temp": None}, "temp must be 0 or more, not None"),
    ({"top_p": "0.9"}, r"top_p must be in 0\.\.1, not '0.9'"),
    ({"min_p": [0.1]}, r"min_p must be in 0\.\.1, not \[0.1\]"),
    ({"top_k": 2.5}, "top_k must be a whole number from 0, not 2.5"),
    ({"seed": "1"}, "seed must be a whole number from 0, not '1'"),
    ({"kv_bits": 8, "quantized_kv_start": "5"}, "quantized_kv_start must be 0 or more, not '5'"),
    ({"kv_bits": 8, "quantized_kv_start": 2.5}, "quantized_kv_start must be 0 or more, not 2.5"),
]


class Mask:
    """A token mask that says whatever it was given."""

    def __init__(self, says: Any) -> None:
        self._says = says

    def allowed(self) -> Any:
        """What it was given."""
        return self._says

    def advance(self, token: int) -> None:
        """Nothing."""

    def rewind(self, count: int) -> None:
        """Nothing."""

    def fork(self) -> "Mask":
        """Itself."""
        return self


class Says(Fixed):
    """A depth policy that chooses whatever it was given."""

    def __init__(self, says: Any) -> None:
        self._says = says

    def depth(self, most: int) -> Any:
        """What it was given."""
        return self._says


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *given: value


def _forgets(tokens: mx.array, logits: mx.array) -> Any:
    """A processor whose author forgot to return."""


MASKED = "of the Mask return an mlx array of one bool a token"
CHOSEN = "the number of drafts that the depth policy chose must be a whole number"
DECODING: list[tuple[dict[str, Any], str]] = [
    ({"token_mask": Mask(None)}, rf"a token mask is bool \[260\], not None: .*{MASKED}"),
    ({"token_mask": Mask([True])}, rf"bool \[260\], not a list: .*{MASKED}"),
    ({"token_mask": Mask(mx.ones(260))}, rf"not .*float32 \(260,\): .*{MASKED}"),
    ({"token_mask": Mask(mx.ones((1, 260), mx.bool_))}, rf"not .*bool.* \(1, 260\): .*{MASKED}"),
    ({"logits_processors": [_forgets]}, r"the logits processor _forgets returned None for .*shape"),
    ({"logits_processors": [_returns(1.5)]}, "returned a float for logits .*let it return an mlx"),
    ({"logits_processors": [_returns(mx.zeros(260))]}, r"returned .*float32 \(260,\) for logits"),
    ({"sampler": _returns(None)}, r"the sampler returned None: let it return token ids \(1,\)"),
    ({"sampler": _returns(7)}, "the sampler returned a int: let it return token ids"),
    ({"sampler": _returns(mx.zeros(1))}, r"the sampler returned .*float32 \(1,\): let it return"),
    ({"sampler": _returns(mx.array([[1]]))}, r"sampler returned .*\(1, 1\): let it return token"),
    ({"depth_policy": Says(None)}, CHOSEN),
    ({"depth_policy": Says(2.0)}, CHOSEN),
    ({"depth_policy": Says("2")}, CHOSEN),
    ({"depth_policy": Says(9)}, "the depth policy chose 9 drafts where 0 to 3 are possible"),
    ({"depth_policy": Says(2.0), "draft_source": Source([])}, CHOSEN),
    ({"draft_source": _returns(None)}, "the draft source returned None: let it return a list"),
    ({"draft_source": _returns(["a"])}, "the drafts must be a flat sequence of token ids"),
]


def _tokens(zoo: Zoo, options: dict[str, Any]) -> list[Emission]:
    return list(islice(generate_step(PROMPT, *zoo("attn"), **options), 3))


@pytest.mark.parametrize(("options", "said"), CALLED)
def test_at_the_call(zoo: Zoo, options: dict[str, Any], said: str) -> None:
    """A value of another type is refused at the call, by name, as a wrong value is."""
    with pytest.raises(DecoderError, match=said):
        generate_step(PROMPT, *zoo("attn"), **options)


@pytest.mark.parametrize(("options", "said"), DECODING)
def test_while_decoding(zoo: Zoo, options: dict[str, Any], said: str) -> None:
    """What a mask, processor, sampler, policy or draft source returns is refused, and why."""
    with pytest.raises(DecoderError, match=said):
        _tokens(zoo, options)


def test_numbers_of_any_kind(zoo: Zoo) -> None:
    """NumPy's numbers are numbers."""
    numpy = pytest.importorskip("numpy")
    given = {"temp": numpy.float32(0.5), "top_p": numpy.float64(0.9)}
    assert [t for t, *_ in _tokens(zoo, given)] == [
        t for t, *_ in _tokens(zoo, {"temp": 0.5, "top_p": 0.9})
    ]


def test_a_refused_answer_undoes_the_round(zoo: Zoo) -> None:
    """A session whose sampler answers nonsense once is as before, and goes on."""
    answers: list[Any] = [mx.array([5]), None, mx.array([6])]
    session = Session(*zoo("attn"), sampler=lambda _: answers.pop(0))
    session.prefill(PROMPT)
    with pytest.raises(DecoderError, match="the sampler returned None"):
        session.round(0)
    assert session.round(0).tokens == (6,)
