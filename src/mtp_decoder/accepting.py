"""Accepting drafts: the longest prefix the target itself would have emitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

Sampler = Callable[[mx.array], mx.array]
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


def greedy_sampler(logprobs: mx.array) -> mx.array:
    """The likeliest token; ties go to the lowest id."""
    return mx.argmax(logprobs, axis=-1)


@dataclass(frozen=True)
class Acceptance:
    """Outcome of one verify pass.

    Attributes:
        accepted: a, number of drafts that stand.
        tokens: a+1 token ids: the accepted drafts and one correction or bonus.
        logprobs: [a+1, V] log-probabilities each of them was chosen from.
    """

    accepted: int
    tokens: tuple[int, ...]
    logprobs: mx.array


def accept(
    drafts: Sequence[int],
    logits: mx.array,
    history: Sequence[int],
    sampler: Sampler,
    processors: Sequence[LogitsProcessor],
) -> Acceptance:
    """Sample every row and keep drafts while they equal the sample.

    Args:
        drafts: K token ids.
        logits: [K+1, V], row i after anchor and i drafts.
        history: every token before the drafts, the anchor included, for the processors.
        sampler: log-probabilities [rows, V] to token ids [rows].
        processors: called as mlx-lm calls them, row after row, and never with a rejected
            draft in their history.
    """
    if processors:
        return _accept_row_by_row(drafts, logits, history, sampler, processors)
    logprobs = _normalise(logits)
    sampled = cast("list[int]", sampler(logprobs).tolist())
    accepted = 0
    while accepted < len(drafts) and sampled[accepted] == drafts[accepted]:
        accepted += 1
    return Acceptance(accepted, tuple(sampled[: accepted + 1]), logprobs[: accepted + 1])


def _accept_row_by_row(
    drafts: Sequence[int],
    logits: mx.array,
    history: Sequence[int],
    sampler: Sampler,
    processors: Sequence[LogitsProcessor],
) -> Acceptance:
    rows: list[mx.array] = []
    tokens: list[int] = []
    for i in range(len(drafts) + 1):
        seen = mx.array([*history, *tokens])
        row = logits[i : i + 1]
        for processor in processors:
            row = processor(seen, row)
        rows.append(_normalise(row))
        tokens.append(cast("int", sampler(rows[-1]).item()))
        if i == len(drafts) or tokens[i] != drafts[i]:
            break
    return Acceptance(len(tokens) - 1, tuple(tokens), mx.concatenate(rows))


def _normalise(logits: mx.array) -> mx.array:
    """Log-probabilities, in the dtype of the logits, as mlx-lm computes them."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
