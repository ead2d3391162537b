"""The law of sampled tokens, counted over seeds.

A runtime cannot be handed uniform numbers, so its law cannot be enumerated through the protocol;
it is counted. Cut to the four likeliest tokens there are few outcomes, whose exact probabilities
follow from the runtime's own logits. Seeds are fixed, so a verdict is always the same one; of many
runtimes that are right one in a million or so fails by chance.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import mlx.core as mx

from mtp_conformance import (
    Capability,
    Cell,
    Group,
    Inconclusive,
    Options,
    Oracles,
    Witness,
    case,
)

TOP_K = 4
RARE = 5.0
"""Outcomes are counted together until this many are due."""
ONCE_IN_A_MILLION = 4.753
"""That far above its mean, in deviations, does a normal variable lie that rarely."""
Tokens = tuple[int, ...]
Law = dict[Tokens, float]
Way = tuple[str, int, str]
"""Acceptance, K, and the temperature in gaps: how far the second logit is below the first.

The gap is that of the row the first draft is judged by, so that its law is spread whatever weights
are drawn. Between rows of one model gaps differ by a hundred times.
"""


def _cells(usual: Sequence[Way], k: int) -> Callable[[str], Sequence[Cell]]:
    gaps, depths = ("0.5", "1", "2"), sorted({k, 2})
    every = [(h, d, t) for h in ("match", "rejection") for d in depths for t in gaps]

    def cells(profile: str) -> Sequence[Cell]:
        found: list[Cell] = []
        for how, depth, gap in every if profile == "full" else usual:
            extra = (("acceptance", how), ("gaps", gap))
            found.append(Cell("gdn-agree", "tape", depth, None, "float32", 5, extra))
        return found[:1] if profile == "smoke" else found

    return cells


@case(
    "sample.law.own-drafts",
    clause="sampled-law",
    needs=("stream", "logits", "sampling"),
    oracle="the law that the runtime's own logits have at that temperature",
    witness="tokens of many seeds, accepts and rejects",
    faults=("S1", "S2"),
    since="0.1.0",
    cells=_cells([("rejection", 1, "2")], 1),
)
def test_own_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Two sampled tokens, the second one drafted by the head, have the target's law."""
    oracles.need(Capability.STREAM, Capability.LOGITS, Capability.SAMPLING)
    group, k = oracles.group(cell), cell.k or 0
    likeliest = cast("int", mx.argmax(_logits_after(group, ())).item())
    options = _options(oracles, cell, _logits_after(group, (likeliest,)))
    seen: Counter[Tokens] = Counter()
    for seed in range(140):
        session = group.open(replace(options, seed=seed))
        made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=k + 2)
        seen[tuple(made.tokens[:2])] += 1
        witness.add(**made.engagement)
    first = _row(_logits_after(group, ()), options.temperature)
    law = {
        (token, other): p * chance
        for token, p in first.items()
        for other, chance in _row(_logits_after(group, (token,)), options.temperature).items()
    }
    witness.add(compared=_require_law(seen, law))
    witness.require(accepted=1, rejected=1)


@case(
    "sample.law.given-drafts",
    clause="sampled-law",
    needs=("drafts", "logits", "fork", "sampling"),
    oracle="the law that the runtime's own logits have at that temperature",
    witness="rounds of many seeds, accepts and rejects",
    faults=("S1", "S3", "T10"),
    since="0.1.0",
    cells=_cells([("match", 2, "0.5"), ("rejection", 2, "0.5"), ("rejection", 2, "2")], 2),
)
def test_given_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """What a round emits has the target's law: accepted drafts, corrections and bonus alike."""
    oracles.need(Capability.DRAFTS, Capability.LOGITS, Capability.FORK, Capability.SAMPLING)
    group = oracles.group(cell)
    options = _options(oracles, cell, _rows(group, ())[-1])
    drafts: list[int] = []
    for _ in range(cell.k or 0):
        row = _row(_rows(group, drafts)[-1], options.temperature)
        drafts.append(sorted(row, key=lambda token: -row[token])[1])
    seen: Counter[Tokens] = Counter()
    for seed in range(150):
        outcome = group.prefilled(replace(options, seed=seed)).round(drafts)
        seen[outcome.tokens] += 1
        rejected = len(drafts) - outcome.accepted
        witness.add(drafted=len(drafts), accepted=outcome.accepted, rejected=rejected)
    rows = [_row(logits, options.temperature) for logits in _rows(group, drafts)]
    witness.add(compared=_require_law(seen, _law_of_round(drafts, rows)))
    witness.require(accepted=1, rejected=1)


def _options(oracles: Oracles, cell: Cell, judging: mx.array) -> Options:
    axes, options = cell.params, oracles.options(cell)
    logits = cast("list[float]", judging.astype(mx.float32).tolist())
    first, second, *_ = sorted(logits, reverse=True)
    temperature = float(axes["gaps"]) * ((first - second) or 1.0)
    acceptance = str(axes["acceptance"])
    return replace(options, temperature=temperature, top_k=TOP_K, acceptance=acceptance)


def _logits_after(group: Group, tokens: Sequence[int]) -> mx.array:
    """Logits [V] after the prompt and these tokens."""
    logits = group.open(Options()).prefill([*group.prompt, *tokens]).logits
    assert logits is not None
    return logits[-1]


def _rows(group: Group, drafts: Sequence[int]) -> mx.array:
    """Logits [K+1, V] of a round of these drafts."""
    logits = group.prefilled(Options()).round(drafts).logits
    assert logits is not None
    return logits


def _row(logits: mx.array, temperature: float) -> dict[int, float]:
    """Probabilities of the likeliest tokens of a row [V]."""
    row = cast("list[float]", logits.astype(mx.float32).tolist())
    kept = sorted(range(len(row)), key=lambda token: (-row[token], token))[:TOP_K]
    weights = {token: math.exp((row[token] - row[kept[0]]) / temperature) for token in kept}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def _law_of_round(drafts: Sequence[int], rows: Sequence[dict[int, float]]) -> Law:
    """A draft stands as often as its row has it; a token of another id ends the round there."""
    law: Law = {}
    so_far = 1.0
    for i, row in enumerate(rows):
        draft = drafts[i] if i < len(drafts) else None
        law |= {(*drafts[:i], token): so_far * p for token, p in row.items() if token != draft}
        so_far *= row[draft] if draft is not None else 0.0
    return law


def _require_law(seen: Counter[Tokens], law: Law) -> int:
    """Demand counts that are no more of a surprise than once in a million.

    Raises:
        AssertionError: says what came how often, and how often it was due.
    """
    count = sum(seen.values())
    told = ", ".join(f"{key} {seen[key]} times of {count * p:.1f}" for key, p in law.items())
    odd = set(seen) - set(law)
    assert not odd, f"emitted {min(odd)}, which top_k={TOP_K} forbids; due: {told}"
    cells = _cells_of(seen, {tokens: count * p for tokens, p in law.items()})
    if len(cells) < 2:
        raise Inconclusive(f"one outcome is nearly all of the law, so counts say nothing: {told}")
    surprise = sum((n - due) ** 2 / due for n, due in cells)
    limit = _limit(len(cells) - 1)
    assert surprise < limit, f"chi-square is {surprise:.1f}, at most {limit:.1f} is chance: {told}"
    return count


def _cells_of(seen: Counter[Tokens], due: Law) -> list[tuple[int, float]]:
    """Counts and what was due, the rarest outcomes together until enough of them are."""
    cells = [(0, 0.0)]
    for tokens in sorted(due, key=lambda tokens: due[tokens]):
        if cells[-1][1] >= RARE:
            cells.append((0, 0.0))
        cells[-1] = cells[-1][0] + seen[tokens], cells[-1][1] + due[tokens]
    return cells


def _limit(degrees: int) -> float:
    """Chi-square that chance exceeds once in a million, by Wilson and Hilferty's formula."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + ONCE_IN_A_MILLION * math.sqrt(spread)) ** 3
