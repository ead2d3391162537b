"""The tokenizer: the files written beside a model mean what `encode` says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import load

from reference_models.prompts import PROMPTS
from reference_models.tokenizer import EOS, PAD, decode, encode, tokenizer_files

TEXTS = {
    "empty": "",
    "ascii": "def f(x):\n\treturn  x['a'] + 1  # !?\r\n",
    "every ascii byte": "".join(chr(i) for i in range(128)),
    "latin": "Äpfel, naïve café — ¡señor! ½ ÿ",
    "further": "日本語 русский ελληνικά 🙂🏳️‍🌈 \u00a0\u00ad\u2028",
    "specials": "<|endoftext|>a<|endoftext|><|endoftext|>b <|endoftext|>",
    "half a special": "<|endoftext| >endoftext|>",
    **PROMPTS,
}


@pytest.fixture(scope="module")
def loaded(checkpoint: Callable[..., Path]) -> Any:
    """Return the tokenizer of a checkpoint as mlx-lm loads it."""
    return load(checkpoint("gdn"))


@pytest.mark.parametrize("text", TEXTS)
def test_ids(loaded: Any, text: str) -> None:
    """mlx-lm's tokenizer encodes to the very ids of `encode`."""
    assert loaded.encode(TEXTS[text], add_special_tokens=False) == encode(TEXTS[text])


@pytest.mark.parametrize("text", [t for t in TEXTS if "special" not in t and t not in PROMPTS])
def test_round_trip(loaded: Any, text: str) -> None:
    """Ids decode to the text they came from, here and there."""
    assert decode(encode(TEXTS[text])) == TEXTS[text]
    assert loaded.decode(encode(TEXTS[text])) == TEXTS[text]


def test_no_token_is_added(loaded: Any) -> None:
    """Nothing is put before or behind a text."""
    assert loaded.encode("ab") == [97, 98]


def test_the_end_of_text(loaded: Any) -> None:
    """The end-of-text token is known as such to whoever loads the files."""
    assert (loaded.eos_token_id, loaded.eos_token_ids) == (EOS, {EOS})
    assert encode("<|endoftext|>") == [EOS]


def test_decoding_leaves_specials_out() -> None:
    """Special tokens and ids without a byte are left out; broken UTF-8 is marked."""
    assert decode([97, EOS, 98, PAD, 259, 0xE6, 0x97]) == "ab\ufffd"


def test_bytes_are_tokens() -> None:
    """Token b is byte b."""
    text = "é\x00\x7f"
    assert encode(text) == list(text.encode())


def test_the_vocabulary() -> None:
    """The files hold one entry a byte, under names that do not repeat, and the two specials."""
    document = json.loads(json.dumps(tokenizer_files()["tokenizer.json"]))
    assert sorted(document["model"]["vocab"].values()) == list(range(256))
    assert [token["id"] for token in document["added_tokens"]] == [EOS, PAD]
