"""The texts, and the crops of them that a training step sees.

A crop is a function of seed, step and row alone (Philox, as in `reference_models.weights`), so a
run that is resumed sees what an uninterrupted one sees. The end of each text is held out: no
crop reaches into it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reference_models.tokenizer import encode

FOLDER = Path(__file__).resolve().parents[1] / "trained" / "texts"
NAMES = ("code", "prose")
HELD_OUT = 16384
"""Tokens at the end of each text that training never sees."""

Tokens = NDArray[np.int32]


class TextError(ValueError):
    """A text that is missing or is not the recorded one; the message says which."""


@cache
def text(name: str) -> Tokens:
    """All tokens of a text.

    Raises:
        TextError: the file is missing, or its content is not the one `texts.json` records.
    """
    file = FOLDER / f"{name}.txt.xz"
    try:
        raw = lzma.decompress(file.read_bytes())
        recorded = json.loads((FOLDER / "texts.json").read_text())[name]["sha256"]
    except (OSError, lzma.LZMAError, KeyError, ValueError) as error:
        raise TextError(f"{file} cannot be read: {error!r}; check it out again") from error
    if hashlib.sha256(raw).hexdigest() != recorded:
        raise TextError(f"{file} is not the text that texts.json records; check it out again")
    return np.array(encode(raw.decode("ascii")), np.int32)


def training_part(tokens: Tokens) -> Tokens:
    """All but the held-out end."""
    return tokens[:-HELD_OUT]


def held_out(tokens: Tokens) -> Tokens:
    """The end that training never sees."""
    return tokens[-HELD_OUT:]


def crops(texts: Mapping[str, Tokens], seed: int, step: int, batch: int, length: int) -> Tokens:
    """The batch of one step: [batch, length], rows from the texts in turn.

    Args:
        texts: what may be cropped, by name; the names' order is the order of the rows.
        seed: of the run.
        step: number of the step, from 0.
        batch: rows.
        length: tokens a row.
    """
    raw = np.asarray(np.random.Philox(key=[seed, step]).random_raw(batch), dtype=np.uint64)
    parts = list(texts.values())
    rows: list[Tokens] = []
    for row in range(batch):
        source = parts[row % len(parts)]
        start = int(raw[row] % np.uint64(len(source) - length + 1))
        rows.append(source[start : start + length])
    return np.stack(rows)
