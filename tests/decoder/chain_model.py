"""A target and a head with laws of the test's choice: what comes next hangs on the last token.

The residual of a position is its token, so that every row of logits tells which token it follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from mtp_decoder import rules
from mtp_decoder.randomness import Purpose

Law = Sequence[Fraction]
Table = Sequence[Law]
Outcomes = dict[tuple[int, ...], Fraction]
"""Probabilities of token sequences."""
Uniforms = Callable[[int], float]
"""From a number of equal cells to the middle of one of them."""


def table(rows: Sequence[str]) -> Table:
    """Laws from rows such as "1/4 1/2 1/4"."""
    return [[Fraction(part) for part in row.split()] for row in rows]


def logits_of(laws: Table, temp: float = 1.0) -> mx.array:
    """Logits [V, V] whose law at this temperature is the table."""
    return mx.array([[temp * math.log(p) if p else -math.inf for p in law] for law in laws])


class ChainTarget:
    """A target without a layer."""

    def __init__(self, logits: mx.array) -> None:
        self.vocab_size = logits.shape[-1]
        self.layers: list[Any] = []
        self._logits = logits

    def make_cache(self) -> list[Any]:
        """There is nothing to keep."""
        return []

    def embed(self, tokens: mx.array) -> mx.array:
        """The tokens themselves [B, T, 1]."""
        return tokens[..., None].astype(mx.float32)

    def logits(self, hidden: mx.array) -> mx.array:
        """The row of the token [B, T, V]."""
        return self._logits[hidden[..., 0].astype(mx.int32)]


class ChainHead:
    """A head with one layer's cache, of which the decoder needs the length."""

    def __init__(self, logits: mx.array) -> None:
        self.layers: list[Any] = [lambda x, tokens, cache: x]
        self._logits = logits

    def make_cache(self) -> list[Any]:
        """One cache."""
        return [KVCache()]

    def __call__(
        self, hidden: mx.array, tokens: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """The row of the token, whatever the hidden is."""
        rows = mx.zeros((1, 1, tokens.shape[1], 1))
        cache[0].update_and_fetch(rows, rows)
        return self._logits[tokens], hidden


def every_choice(run: Callable[[Uniforms], Any]) -> Iterator[tuple[Any, Fraction]]:
    """Run with every value of every uniform number it asks for; results and their weights.

    A number is the middle of one of n equal cells. Where all the bounds it is compared with lie
    between cells, the sum of weights is the exact probability.
    """
    pending: list[list[int]] = [[]]
    while pending:
        choices = _Choices(pending.pop(), pending)
        result = run(choices)
        yield result, choices.weight


class _Choices:
    """Numbers as a script says; where it ends the first cell, and all others left to do."""

    def __init__(self, script: list[int], pending: list[list[int]]) -> None:
        self.weight = Fraction(1)
        self._script, self._pending = script, pending
        self._asked = 0

    def __call__(self, cells: int) -> float:
        if self._asked == len(self._script):
            self._pending += [[*self._script, other] for other in range(1, cells)]
            self._script.append(0)
        chosen = self._script[self._asked]
        self._asked += 1
        self.weight /= cells
        return (chosen + 0.5) / cells


def exact_law(laws: Table, start: int, count: int) -> Outcomes:
    """The law of the next `count` tokens of a chain."""
    found: Outcomes = {(): Fraction(1)}
    for _ in range(count):
        found = {
            (*tokens, token): weight * p
            for tokens, weight in found.items()
            for token, p in enumerate(laws[tokens[-1] if tokens else start])
            if p
        }
    return found


def scripted_uniforms(
    patch: pytest.MonkeyPatch, choose: Uniforms, cells: Callable[[Purpose], int]
) -> None:
    """Make the decoder's uniform numbers choices; a number asked for twice is the same one."""
    known: dict[tuple[int, Purpose], float] = {}

    def uniform(seed: int, position: int, purpose: Purpose) -> float:
        key = position, purpose
        if key not in known:
            known[key] = choose(cells(purpose))
        return known[key]

    patch.setattr(rules, "uniform", uniform)
