"""`stream_generate`: text as it comes, in mlx-lm's manner, with drafts of the model's own head."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mtp_decoder.generate import generate_step
from mtp_decoder.stopping import Stops
from mtp_decoder.target import Head, Target
from mtp_decoder.text import TextStream


@dataclass(frozen=True)
class Response:
    """One emitted token.

    Attributes:
        text: what became certain with it; may be empty, or more than this token's own text.
        token: its id.
        logprobs: its log-probabilities [V].
        from_draft: whether the head drafted it.
        finish_reason: with the last one, `stop` or `length`; else None.
    """

    text: str
    token: int
    logprobs: mx.array
    from_draft: bool
    finish_reason: str | None = None


def stream_generate(
    model: Target,
    tokenizer: Any,
    prompt: str | Sequence[int],
    head: Head | None = None,
    *,
    stop_strings: Sequence[str] = (),
    eos_token_ids: Sequence[int] | None = None,
    stop_sequences: Sequence[Sequence[int]] = (),
    max_tokens: int = 256,
    **arguments: Any,
) -> Generator[Response, None, None]:
    """Yield text after a prompt.

    A stop string ends generation with the token that completes it: that token is the last one,
    its log-probabilities are the last row, the caches hold what comes before it, and the text
    ends where the stop string begins.

    Args:
        model: the target.
        tokenizer: mlx-lm's `TokenizerWrapper` or one of Hugging Face's.
        prompt: text, or token ids.
        head: the model's MTP head; needed for `num_draft_tokens` above 0.
        stop_strings: strings that end generation once they are complete.
        eos_token_ids: tokens that end it; the tokenizer's own by default.
        stop_sequences: token sequences that end it once emitted.
        max_tokens: tokens to emit at most; -1 for no limit.
        arguments: all others of `generate_step`.

    Yields:
        A response a token.

    Raises:
        DecoderError: as `generate_step`; an empty stop string.
    """
    ends = _ends(tokenizer) if eos_token_ids is None else eos_token_ids
    text = TextStream(tokenizer, stop_strings, ends)
    tokens = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    stops = Stops(ends, stop_sequences, text)
    emitted = generate_step(tokens, model, head, max_tokens=max_tokens, stops=stops, **arguments)
    return _responses(emitted, text, stops, max_tokens)


def _responses(
    emitted: Generator[tuple[int, mx.array, bool], None, None],
    text: TextStream,
    stops: Stops,
    max_tokens: int,
) -> Generator[Response, None, None]:
    for index, emission in enumerate(emitted):
        piece, reason = text.piece(index), None
        if index + 1 == stops.ended_after:
            reason = "stop"
        elif index + 1 == max_tokens:
            reason = "length"
        yield Response(piece + (text.finish() if reason else ""), *emission, reason)


def _ends(tokenizer: Any) -> Sequence[int]:
    several: Sequence[int] | None = getattr(tokenizer, "eos_token_ids", None)
    one: int | None = tokenizer.eos_token_id
    return sorted(several) if several else [] if one is None else [one]
