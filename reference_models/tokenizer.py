"""A byte-level tokenizer: token b is byte b, 256 ends a text, 257 pads.

`tokenizer_files` gives the Hugging Face files, a byte-level BPE without merges, so that any
loader turns text into the same ids as `encode`.
"""

from __future__ import annotations

from typing import Any

EOS, PAD = 256, 257
_EOS_TEXT, _PAD_TEXT = "<|endoftext|>", "<|pad|>"


def encode(text: str) -> list[int]:
    """UTF-8 bytes of the text, `<|endoftext|>` as one token."""
    parts = text.split(_EOS_TEXT)
    ids = list(parts[0].encode())
    for part in parts[1:]:
        ids += [EOS, *part.encode()]
    return ids


def decode(tokens: list[int]) -> str:
    """The text of tokens; special tokens are left out, broken UTF-8 is marked."""
    return bytes(token for token in tokens if token < EOS).decode(errors="replace")


def tokenizer_files() -> dict[str, dict[str, Any]]:
    """Contents of tokenizer.json and tokenizer_config.json."""
    vocabulary = {character: byte for byte, character in enumerate(_printable())}
    special = [
        {
            "id": number,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, content in ((EOS, _EOS_TEXT), (PAD, _PAD_TEXT))
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {**byte_level, "use_regex": False},
        "decoder": {**byte_level, "use_regex": False},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _EOS_TEXT,
        "pad_token": _PAD_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": settings}


def _printable() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary.

    Printable Latin-1 bytes stand for themselves, the others for code points from 256 on.
    """
    keeps = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in keeps else next(others)) for byte in range(256)]
