"""Stop strings: text, ids, log-probabilities and caches end together."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.tokenizer_utils import load as load_tokenizer

from mtp_decoder import DecoderError, Response, Session, Stops, emit, stream_generate
from mtp_decoder.text import TextStream
from reference_models import checkpoint
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Source

TEXT = "one STOP two é three"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The zoo's tokenizer, of bytes, in mlx-lm's wrapper."""
    folder: Path = tmp_path_factory.mktemp("tokenizer") / "gdn"
    checkpoint.write_zoo("gdn", folder, mx.float32)
    return load_tokenizer(folder, eos_token_ids=[256])


class Saying:
    """A token mask under which exactly one text can be said."""

    def __init__(self, tokens: list[int], at: int = 0) -> None:
        self._tokens, self._at = tokens, at

    def allowed(self) -> mx.array:
        """The one token whose turn it is."""
        return mx.arange(260) == self._tokens[self._at % len(self._tokens)]

    def advance(self, token: int) -> None:
        """Go on."""
        self._at += 1

    def rewind(self, count: int) -> None:
        """Go back."""
        self._at -= count

    def fork(self) -> "Saying":
        """A copy."""
        return Saying(self._tokens, self._at)


def _said(
    zoo: Zoo, tokenizer: Any, stops: list[str], text: str = TEXT, **more: Any
) -> list[Response]:
    tokens = [*text.encode(), 256]
    return list(
        stream_generate(
            zoo("gdn")[0],
            tokenizer,
            PROMPT,
            zoo("gdn")[1],
            stop_strings=stops,
            num_draft_tokens=4,
            max_tokens=len(tokens) + 4,
            token_mask=Saying(tokens),
            draft_source=Source(tokens),
            **more,
        )
    )


@pytest.mark.parametrize("place", range(1, 9))
@pytest.mark.parametrize("length", [1, 3])
def test_everything_ends_together(zoo: Zoo, tokenizer: Any, place: int, length: int) -> None:
    """Wherever a stop string is completed in a block, its last token is the last one."""
    stop = TEXT[place : place + length]
    said = _said(zoo, tokenizer, [stop])
    end = TEXT.index(stop) + length
    assert bytes(response.token for response in said) == TEXT.encode()[:end]
    assert "".join(response.text for response in said) == TEXT[: end - length]
    assert [r.finish_reason for r in said] == [None] * (end - 1) + ["stop"]


def test_the_frontier(zoo: Zoo, tokenizer: Any) -> None:
    """The caches hold every emitted token but the last."""
    tokens = list(TEXT.encode())
    session = Session(*zoo("gdn"), token_mask=Saying(tokens))
    stops = Stops(text=TextStream(tokenizer, ["STOP"]))
    emitted = emit(session, PROMPT, num_draft_tokens=4, stops=stops, draft_source=Source(tokens))
    assert bytes(token for token, *_ in emitted) == b"one STOP"
    assert session.target_length == len(PROMPT) + len("one STOP") - 1


def test_a_character_of_two_tokens(zoo: Zoo, tokenizer: Any) -> None:
    """A stop string is complete when its last byte is."""
    said = _said(zoo, tokenizer, ["é"])
    assert bytes(response.token for response in said) == TEXT[: TEXT.index("é") + 1].encode()
    assert "".join(response.text for response in said) == TEXT[: TEXT.index("é")]


def test_the_first_to_be_complete(zoo: Zoo, tokenizer: Any) -> None:
    """Of several stop strings the one that is complete first ends the text where it begins."""
    said = _said(zoo, tokenizer, ["STOP two", "TOP", "three"])
    assert "".join(response.text for response in said) == "one S"


@pytest.mark.parametrize("stops", [["b", "ab"], ["ab", "b"]])
def test_the_earliest_beginning(zoo: Zoo, tokenizer: Any, stops: list[str]) -> None:
    """Of several that one token completes, the text ends where the first of them begins."""
    said = _said(zoo, tokenizer, stops, text="xxab and more")
    assert "".join(response.text for response in said) == "xx"
    assert bytes(response.token for response in said) == b"xxab"


def test_any_of_several_is_held_back(zoo: Zoo, tokenizer: Any) -> None:
    """A beginning of the second stop string waits as one of the first does."""
    said = _said(zoo, tokenizer, ["never", "STOP it"])
    assert said[4].text == ""
    assert "".join(response.text for response in said) == TEXT


def test_held_back_and_given_after_all(zoo: Zoo, tokenizer: Any) -> None:
    """What might have begun a stop string is text once it turns out not to, or at the end."""
    said = _said(zoo, tokenizer, ["STOP it", "three of"])
    assert said[4].text == ""
    assert "".join(response.text for response in said) == TEXT
    assert said[-1].finish_reason == "stop"
    assert said[-1].token == 256


def test_budget(zoo: Zoo, tokenizer: Any) -> None:
    """A stop string that the budget cuts off does not stop; what it held back is text."""
    said = list(
        stream_generate(
            zoo("gdn")[0],
            tokenizer,
            PROMPT,
            stop_strings=["STOP"],
            num_draft_tokens=0,
            max_tokens=7,
            token_mask=Saying(list(TEXT.encode())),
        )
    )
    assert "".join(response.text for response in said) == "one STO"
    assert said[-1].finish_reason == "length"


@pytest.mark.parametrize("bad", ["STOP", [""], [b"STOP"]])
def test_refuses(zoo: Zoo, tokenizer: Any, bad: Any) -> None:
    """One string is no list of strings, and an empty one would stop everything."""
    with pytest.raises(DecoderError, match="list of strings that are not empty"):
        stream_generate(zoo("gdn")[0], tokenizer, "a", stop_strings=bad, num_draft_tokens=0)
