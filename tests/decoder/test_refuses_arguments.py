"""Refused input: budgets, stop sequences, prefill steps and names of strategies."""

from collections.abc import Callable
from typing import Any

import pytest

from mtp_decoder import DecoderError, Session, generate_step
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import PROMPT, untouched

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": -2}, r"max_tokens must be -1 \(no limit\) or more, not -2"),
    ({"stop_sequences": [[1], []]}, "a stop sequence is empty"),
    ({"prefill_step_size": 0}, "prefill_step_size must be at least 1, not 0"),
    ({"prefill_step_size": -3}, "prefill_step_size must be at least 1, not -3"),
    ({"prefill_step_size": 2.5}, "prefill_step_size must be a whole number: 'float'"),
    ({"num_draft_tokens": 2.5}, "num_draft_tokens must be a whole number: 'float'"),
    ({"num_draft_tokens": "2"}, "num_draft_tokens must be a whole number: 'str'"),
    ({"max_tokens": 2.5}, "max_tokens must be a whole number: 'float'"),
    ({"eos_token_ids": 256}, "eos_token_ids is a list of token ids"),
    ({"eos_token_ids": [[256]]}, "eos_token_ids is a list of token ids"),
    ({"eos_token_ids": ["</s>"]}, "eos_token_ids is a list of token ids"),
    ({"stop_sequences": [1, 2]}, "stop_sequences a list of lists of token ids"),
    ({"stop_sequences": ["ab"]}, "stop_sequences a list of lists of token ids"),
]


@pytest.mark.parametrize(("option", "message"), REFUSED)
def test_an_impossible_argument(
    decoding: Callable[..., Decoding], option: dict[str, Any], message: str
) -> None:
    """An argument no decoding is possible with is refused at the call, by name."""
    _, cache, target, head = decoding("flash-next")
    with untouched(cache), pytest.raises(DecoderError, match=message):
        generate_step(PROMPT, target, head, prompt_cache=cache, **option)


@pytest.mark.parametrize("option", [{"rewind": "undo"}, {"head_rows": "both"}])
def test_an_unknown_choice(decoding: Callable[..., Decoding], option: dict[str, Any]) -> None:
    """A strategy or policy of an unknown name is refused at the call, with that name."""
    _, cache, target, head = decoding("flash-next")
    with untouched(cache), pytest.raises(ValueError, match=next(iter(option.values()))):
        generate_step(PROMPT, target, head, prompt_cache=cache, **option)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"rewind": "undo"}, "rewind is one of tape, rerun, snapshot, replay, not 'undo'"),
        ({"head_rows": "both"}, "head_rows is one of draft, target, not 'both'"),
    ],
)
def test_names(zoo: Zoo, option: dict[str, str], said: str) -> None:
    """An unknown name is refused with those there are."""
    with pytest.raises(DecoderError, match=said):
        Session(*zoo("gdn"), **option)  # pyright: ignore[reportArgumentType]
