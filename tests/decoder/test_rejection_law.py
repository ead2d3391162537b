"""Rejection sampling: the exact law of what comes of a block of drafts, by enumeration.

With probabilities that are multiples of a third, every bound a uniform number is compared with
is a multiple of a sixth, with quarters of a twelfth: numbers in the middles of so many cells give
the law exactly.
"""

from collections import defaultdict
from fractions import Fraction
from typing import cast

import mlx.core as mx
import pytest

from mtp_decoder.rejecting import draw, judge
from tests.decoder.chain_model import (
    Outcomes,
    Table,
    Uniforms,
    every_choice,
    exact_law,
    table,
)

CELLS = {3: 6, 4: 12}
P3 = table(["1/3 2/3 0", "1/3 1/3 1/3", "0 1/3 2/3"])
Q3 = table(["2/3 0 1/3", "0 2/3 1/3", "1 0 0"])
P4 = table(["1/4 1/4 1/4 1/4", "0 0 1/4 3/4", "1/2 1/2 0 0", "1/4 0 3/4 0"])
Q4 = table(["0 0 1/2 1/2", "1/4 1/4 1/4 1/4", "1/2 1/4 1/4 0", "0 1 0 0"])


def _rows(laws: Table) -> mx.array:
    return mx.array([[float(p) for p in law] for law in laws])


def _block(p: mx.array, q: mx.array, start: int, k: int, choose: Uniforms) -> tuple[int, ...]:
    """Draft k tokens from q and judge them against p, with the numbers chosen."""
    size, drafts = p.shape[-1], list[int]()
    for _ in range(k):
        last = drafts[-1] if drafts else start
        drafts.append(cast("int", draw(q[last], choose(size)).item()))
    before = mx.array([start, *drafts])
    number = lambda _: choose(CELLS[size])  # noqa: E731
    return tuple(judge(drafts, p[before], q[before[:-1]], number, number))


def block_law(p: Table, q: Table, start: int, k: int) -> Outcomes:
    """The exact law of the tokens one block emits."""
    rows = _rows(p), _rows(q)
    found: Outcomes = defaultdict(Fraction)
    for tokens, weight in every_choice(lambda choose: _block(*rows, start, k, choose)):
        found[tokens] += weight
    return found


def _two_tokens(p: Table, q: Table, start: int, k: int) -> Outcomes:
    """The law of the next two tokens; where a block emits one, the next block's first follows."""
    found: Outcomes = defaultdict(Fraction)
    blocks = {token: block_law(p, q, token, k) for token in range(len(p))}
    for (first, *rest), weight in blocks[start].items():
        following = {tuple(rest): Fraction(1)} if rest else blocks[first]
        for (second, *_), chance in following.items():
            found[first, second] += weight * chance
    return found


@pytest.mark.parametrize(("p", "q", "k"), [(P3, Q3, 1), (P3, Q3, 2), (P4, Q4, 1)])
def test_two_tokens(p: Table, q: Table, k: int) -> None:
    """The next two tokens have the target's law, whatever law the drafts are drawn from."""
    assert _two_tokens(p, q, 0, k) == exact_law(p, 0, 2)


def test_three_tokens() -> None:
    """Where two drafts stand the bonus token has the law of its own row."""
    law = block_law(P3, Q3, 0, 2)
    whole = {tokens: weight for tokens, weight in law.items() if len(tokens) == 3}
    of_pair: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for tokens, weight in whole.items():
        of_pair[tokens[:2]] += weight
    assert whole
    for (a, b, c), weight in whole.items():
        assert weight == of_pair[a, b] * P3[b][c]


@pytest.mark.parametrize(("p", "q"), [(P3, Q3), (P4, Q4)])
def test_accepts(p: Table, q: Table) -> None:
    """A draft stands as often as any lawful rule can let it: by the sum of min(p, q)."""
    law = block_law(p, q, 0, 1)
    stood = sum(weight for tokens, weight in law.items() if len(tokens) == 2)
    assert stood == sum(min(a, b) for a, b in zip(p[0], q[0], strict=True))


def test_no_drafts() -> None:
    """Without drafts the token is drawn from the target's law."""
    assert block_law(P3, Q3, 0, 0) == exact_law(P3, 0, 1)


def test_a_certain_draft() -> None:
    """A given draft counts as drawn from a law that has nothing else; the outcome's law is p."""
    for draft in range(3):
        certain = [[Fraction(int(i == draft)) for i in range(3)]] * 3
        assert _two_tokens(P3, certain, 0, 1) == exact_law(P3, 0, 2)


def test_the_last_row_may_be_missing() -> None:
    """With no row after the last draft, a draft that stands is all there is."""
    p, q = _rows(P3), _rows(Q3)
    assert judge([1], p[:1], q[:1], lambda _: 0.0, lambda _: 0.0) == [1]


def test_numbers_of_later_rows_are_not_asked_for() -> None:
    """Nothing behind the first rejected draft is looked at, so its numbers stay fresh."""
    asked: list[int] = []

    def number(row: int) -> float:
        asked.append(row)
        return 0.999

    p, q = _rows(P3), _rows(Q3)
    judge([0, 0], p, q[:2], number, number)
    assert asked == [0, 0]


@pytest.mark.parametrize(("u", "token"), [(0.0, 1), (0.49, 1), (0.51, 3), (1 - 2**-53, 3)])
def test_draw(u: float, token: int) -> None:
    """A token without weight is never drawn, at either end."""
    assert draw(mx.array([0.0, 2.0, 0.0, 2.0, 0.0]), u).item() == token


def test_draw_when_the_number_rounds_to_one() -> None:
    """A number that rounds to 1 draws the last token that has weight."""
    assert draw(mx.array([0.5, 0.5, 0.0]), 1.0).item() == 1


def test_nothing_left() -> None:
    """Where rounding leaves p nothing over q the token is drawn from p."""
    p, q = mx.array([[0.4999999, 0.5, 0.0]]), mx.array([[0.5, 0.5, 0.0]])
    number = lambda _: 0.99999999  # noqa: E731
    assert judge([0], p, q, number, number) == [1]
