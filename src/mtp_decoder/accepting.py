"""Accepting drafts: the longest prefix that the rule lets stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import mlx.core as mx

from mtp_decoder.processing import Processing
from mtp_decoder.rules import Rule, Told, normalise, while_equal


@dataclass(frozen=True)
class Drafts:
    """The drafts of a round.

    Attributes:
        tokens: K token ids.
        position: in the sequence, of the first of them.
        laws: [K, V] probabilities they were drawn from; None if they were not drawn so.
    """

    tokens: tuple[int, ...]
    position: int
    laws: mx.array | None = None


class Verdict(NamedTuple):
    """What is judged by: the token [K+1] of every row, and log-probabilities.

    `logprobs` are those of the first row [1, V], of the first two, and so on: to cut the rows that
    stand out of all of them later would take MLX's thread a turn of its own.
    """

    tokens: mx.array
    logprobs: tuple[mx.array, ...]


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


def verdict(logits: mx.array, position: int, rule: Rule, processing: Processing) -> Verdict | None:
    """What can be computed along with the logits [K+1, V]; evaluates nothing.

    None where a row's token depends on more than its logits and position.
    """
    if processing.active or not hasattr(rule, "tell"):
        return None
    rows = normalise(logits)
    prefixes = (*(rows[:count] for count in range(1, len(rows))), rows)
    return Verdict(cast("Told", rule).tell(logits, position), prefixes)


def accept(
    drafts: Drafts,
    logits: mx.array,
    history: Sequence[int],
    rule: Rule,
    processing: Processing,
    told: Verdict | None = None,
) -> Acceptance:
    """Let the rule judge every row, and keep drafts while they stand.

    Args:
        drafts: K of them.
        logits: [K+1, V], row i after anchor and i drafts.
        history: every token before the drafts, the anchor included, for the processors.
        rule: chooses the token of a row.
        processing: logits processors and token mask, row after row, and never with a rejected
            draft in their history.
        told: what `verdict` said of these logits.
    """
    if processing.active:
        return _accept_row_by_row(drafts, logits, history, rule, processing)
    if told is not None:
        tokens = while_equal(told.tokens, drafts.tokens)
        rows = told.logprobs[len(tokens) - 1]
    else:
        tokens = rule.judge(drafts.tokens, logits, drafts.position, drafts.laws)
        rows = normalise(logits)[: len(tokens)]
    return Acceptance(len(tokens) - 1, tuple(tokens), rows)


def _accept_row_by_row(
    drafts: Drafts, logits: mx.array, history: Sequence[int], rule: Rule, processing: Processing
) -> Acceptance:
    rows: list[mx.array] = []
    tokens: list[int] = []
    for i in range(len(drafts.tokens) + 1):
        row = processing.row([*history, *tokens], logits[i : i + 1])
        rows.append(normalise(row))
        draft = drafts.tokens[i : i + 1]
        law = None if drafts.laws is None else drafts.laws[i : i + 1]
        tokens += rule.judge(draft, row, drafts.position + i, law)
        if draft != (tokens[i],):
            break
    return Acceptance(len(tokens) - 1, tuple(tokens), mx.concatenate(rows))
