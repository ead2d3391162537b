"""Text of emitted tokens, piece by piece, up to a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer

from mtp_decoder.errors import DecoderError


class TextStream:
    """The text of the tokens so far.

    What may be the beginning of a stop string is held back until it is known not to be; a stop
    string itself is no part of the text. Neither is an end of text, nor half a character.

    Args:
        tokenizer: mlx-lm's or Hugging Face's.
        stop_strings: end the text; the first to be complete does.
        eos_token_ids: tokens without a text.

    Raises:
        DecoderError: a stop string is empty or no string.
    """

    def __init__(
        self, tokenizer: Any, stop_strings: Sequence[str] = (), eos_token_ids: Sequence[int] = ()
    ) -> None:
        if isinstance(stop_strings, str) or not all(
            isinstance(stop, str) and stop  # pyright: ignore[reportUnnecessaryIsInstance]
            for stop in stop_strings
        ):
            raise DecoderError(
                f"stop_strings is a list of strings that are not empty, not {stop_strings!r}"
            )
        self._detokenizer = NaiveStreamingDetokenizer(tokenizer)
        self._stops = tuple(stop_strings)
        self._silent = frozenset(eos_token_ids)
        self._pieces: list[str] = []
        self._out = 0
        self.stopped = False

    def add(self, token: int) -> bool:
        """Take one more token; whether it completes a stop string."""
        if token not in self._silent:
            self._detokenizer.add_token(token)
        text: str = self._detokenizer.text
        # None can begin before: what a stop string may begin with was held back.
        found = [at for stop in self._stops if (at := text.find(stop, self._out)) >= 0]
        self.stopped = bool(found)
        self._give(text, min(found) if found else len(text) - self._held_back(text))
        return self.stopped

    def piece(self, index: int) -> str:
        """The text that became certain with the emitted token of this index, from 0."""
        return self._pieces[index]

    def finish(self) -> str:
        """What was held back, now that no token follows; nothing after a stop string."""
        if self.stopped:
            return ""
        self._detokenizer.finalize()
        rest: str = self._detokenizer.text[self._out :]
        self._out += len(rest)
        return rest

    def _give(self, text: str, end: int) -> None:
        self._pieces.append(text[self._out : end])
        self._out = max(self._out, end)

    def _held_back(self, text: str) -> int:
        """Characters at the end that a stop string may begin with."""
        most = max(map(len, self._stops), default=1) - 1
        lengths = range(min(most, len(text) - self._out), 0, -1)
        tails = ((n, text[len(text) - n :]) for n in lengths)
        return next((n for n, tail in tails if any(s.startswith(tail) for s in self._stops)), 0)
