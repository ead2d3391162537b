"""Rejection sampling: the exact law of what a session emits, by enumeration of its numbers.

Sampled laws are multiples of a half, so that two cells a number give the law exactly; or of a
third, so that six do.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import Sampling, Session, emit
from mtp_decoder.generate import DraftSource
from tests.decoder.chain_model import (
    ChainHead,
    ChainTarget,
    Outcomes,
    Table,
    Uniforms,
    every_choice,
    exact_law,
    logits_of,
    scripted_uniforms,
    table,
)

P = table(["1/2 1/2 0", "0 1/2 1/2", "1 0 0"])
Q = table(["1/2 0 1/2", "1/2 1/2 0", "0 1 0"])
UNEVEN_P = table(["1/3 1/3 1/3", "1/3 2/3 0", "0 1/3 2/3"])
UNEVEN_Q = table(["1 0 0", "2/3 0 1/3", "1/3 2/3 0"])
Make = Callable[[], Session]


def _law(
    patch: pytest.MonkeyPatch,
    make: Make,
    k: int,
    count: int,
    source: DraftSource | None = None,
    cells: int = 2,
) -> Outcomes:
    def run(choose: Uniforms) -> tuple[int, ...]:
        scripted_uniforms(patch, choose, lambda _: cells)
        emitted = emit(make(), [0], num_draft_tokens=k, draft_source=source)
        return tuple(token for token, *_ in islice(emitted, count))

    found: Outcomes = defaultdict(Fraction)
    for tokens, weight in every_choice(run):
        found[tokens] += weight
    return found


def _sessions(p: mx.array, q: mx.array, **sampling: Any) -> Make:
    target, head = ChainTarget(p), ChainHead(q)
    options = Sampling(acceptance="rejection", **sampling)
    return lambda: Session(target, head, sampling=options)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_three_tokens(monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    """Three tokens have the target's law, however many of them are drafted."""
    make = _sessions(logits_of(P), logits_of(Q), temp=1.0)
    assert _law(monkeypatch, make, k, 3) == exact_law(P, 0, 3)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("temp", [0.3, 1.0, 2.0])
def test_temperatures(monkeypatch: pytest.MonkeyPatch, temp: float, k: int) -> None:
    """At every temperature two tokens have the target's law, which no other temperature has."""
    make = _sessions(logits_of(UNEVEN_P, temp), logits_of(UNEVEN_Q, temp), temp=temp)
    assert _law(monkeypatch, make, k, 2, cells=6) == exact_law(UNEVEN_P, 0, 2)


def _with_a_rest(laws: Table, temp: float) -> mx.array:
    """Logits of these laws with something left for every token that has none."""
    rest = min(min(temp * math.log(p) for p in law if p) for law in laws) - 3.0
    logits = logits_of(laws, temp)
    return mx.where(logits == -mx.inf, rest, logits)


@pytest.mark.parametrize("temp", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("cut", [{"min_p": 0.5}, {"top_p": 0.9}])
def test_cuts(monkeypatch: pytest.MonkeyPatch, cut: dict[str, float], temp: float) -> None:
    """With the unlikely tokens cut, in target and head, the rest has its own law."""
    p, q = _with_a_rest(P, temp), _with_a_rest(Q, temp)
    uncut = mx.softmax(p / temp, axis=-1)
    assert (uncut > 0).all().item()
    make = _sessions(p, q, temp=temp, **cut)
    assert _law(monkeypatch, make, 2, 2) == exact_law(P, 0, 2)


def test_top_k_with_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three equal tokens the two lowest are left, with half the law each."""
    p = mx.zeros((3, 3))
    law = table(["1/2 1/2 0"] * 3)
    make = _sessions(p, logits_of(Q), temp=0.7, top_k=2)
    assert _law(monkeypatch, make, 2, 2) == exact_law(law, 0, 2)


def test_given_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given drafts leave the law as it is."""
    make = _sessions(logits_of(P), logits_of(Q), temp=1.0)
    law = _law(monkeypatch, make, 2, 3, lambda history, k: [1, 2][:k])
    assert law == exact_law(P, 0, 3)


def _banned(history: mx.array, logits: mx.array) -> mx.array:
    return mx.where(mx.arange(3) == 2, -mx.inf, logits)


def test_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A logits processor changes the target's law, and that law is sampled."""
    target, head = ChainTarget(mx.zeros((3, 3))), ChainHead(logits_of(Q))
    sampling = Sampling(temp=1.0, acceptance="rejection")
    make = lambda: Session(  # noqa: E731
        target, head, sampling=sampling, logits_processors=[_banned]
    )
    law = table(["1/2 1/2 0"] * 3)
    assert _law(monkeypatch, make, 2, 2) == exact_law(law, 0, 2)
