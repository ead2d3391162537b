"""Where decoding ends: after a sequence of tokens, or once a string of text is complete.

Both are looked for token by token inside a block, so that ids, log-probabilities, text and
caches end at the same token.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from mtp_decoder.errors import DecoderError
from mtp_decoder.text import TextStream


class Stops:
    """Ends of text, stop sequences and stop strings of one request.

    Args:
        eos_token_ids: tokens that end generation.
        stop_sequences: token sequences that end it.
        text: the text so far, with its stop strings.

    `ended_after` is how many tokens were emitted when a stop ended them; None until then.

    Raises:
        DecoderError: an empty stop, or not the nesting asked for.
    """

    def __init__(
        self,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        text: TextStream | None = None,
    ) -> None:
        try:
            stops = [tuple(operator.index(token) for token in stop) for stop in stop_sequences]
            stops += [(operator.index(token),) for token in eos_token_ids]
        except TypeError as error:
            raise DecoderError(
                "eos_token_ids is a list of token ids, stop_sequences a list of lists of token "
                f"ids: {error}"
            ) from error
        if not all(stops):
            raise DecoderError("a stop sequence is empty")
        self._stops = stops
        self._text = text
        self.ended_after: int | None = None

    @property
    def reach(self) -> int:
        """How many tokens before a block a stop in it may begin."""
        return max((len(stop) for stop in self._stops), default=1) - 1

    def until(self, tail: Sequence[int], new: int, done: int) -> int:
        """How many of the last `new` tokens are emitted: up to a stop, that one included.

        Args:
            tail: the block's tokens, and `reach` tokens before it, or all if there are fewer.
            new: tokens of the block; at least one.
            done: tokens emitted before it.
        """
        if self._text is None and not self._stops:
            return new
        for count in range(1, new + 1):
            if self._ends(tail[: len(tail) - new + count], done + count):
                self.ended_after = done + count
                return count
        return new

    def _ends(self, tail: Sequence[int], emitted: int) -> bool:
        """Whether the emitted tokens, the last `emitted` of a tail of history, end with a stop."""
        ends = any(len(s) <= emitted and tuple(tail[-len(s) :]) == s for s in self._stops)
        return (self._text is not None and self._text.add(tail[-1])) or ends
