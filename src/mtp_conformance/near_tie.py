"""The stream claim: tokens with drafts are the tokens of K=0 of the same runtime.

No tolerance where a verify pass is row-exact. Elsewhere a divergence is a near-tie only if it
is proven to be one, by all of:

1. the two candidates' K=0 logits lie within a few ULPs of the logits' data type at that
   magnitude;
2. the first divergence does not move when K goes 1, 2, 3: a rollback fault moves with K;
3. teacher-forced past the divergence, the state claim still holds.

A near-tie is never a pass.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from mtp_conformance.case import Cell
from mtp_conformance.claims import require_shape_matched
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.group import Group
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Capability
from mtp_conformance.tokens import first_difference, require_tokens
from mtp_conformance.verdict import NearTie, Unsupported

MOST_ULPS = 4
LADDER = (1, 2, 3)
_MANTISSA_BITS = {mx.float32: 23, mx.bfloat16: 7, mx.float16: 10}


class StreamDiffers(AssertionError):
    """A stream is not the one of K=0.

    Attributes:
        ladder: for each K tried, where its stream first diverges; None where it does not.
        margin: distance between the two candidates' K=0 logits; None if not known.
    """

    def __init__(
        self, message: str, ladder: Sequence[tuple[int, int | None]], margin: float | None
    ) -> None:
        super().__init__(message)
        self.ladder = tuple(ladder)
        self.margin = margin


@dataclass(frozen=True)
class Divergence:
    """Where a stream leaves K=0's, and how near its choice was.

    Attributes:
        index: of the emitted token.
        token: emitted.
        expected: what K=0 emits.
        margin: K=0's logit of `expected` less that of `token`.
        ulps: the margin in units in the last place at the larger logit's magnitude.
    """

    index: int
    token: int
    expected: int
    margin: float
    ulps: float


def require_stream(
    oracles: Oracles,
    cell: Cell,
    group: Group,
    tokens: Sequence[int],
    again: Callable[[int], Sequence[int]],
) -> int:
    """Demand the stream of K=0; returns how many tokens were compared.

    Args:
        oracles: decides whether ties are spoken of at all.
        cell: its K is what `tokens` were decoded with.
        group: gives the K=0 stream.
        tokens: emitted.
        again: decode the same with another K.

    Raises:
        StreamDiffers: a divergence that is no proven near-tie.
        NearTie: a proven one.
    """
    expected = group.stream(len(tokens))
    index = first_difference(tokens, expected)
    if index is None:
        return require_tokens(tokens, expected, what="K=0")
    k = cell.k or 0
    ladder = _climb(oracles, k, again, expected)
    story = f"emitted token {index} is {tokens[index]}, K=0 emits {expected[index]}"
    if not oracles.runtime.offers(Capability.LOGITS, Capability.DRAFTS):
        raise StreamDiffers(f"{story}; {_told(ladder)}", ladder, None)
    found = _divergence(group, index, tokens[index], expected[index])
    story += f" ({found.margin:g} apart, {found.ulps:.3g} ULP); {_told(ladder)}"
    reason = _why_no_tie(oracles, cell, group, found, ladder)
    if reason is not None:
        raise StreamDiffers(f"{story}; {reason}", ladder, found.margin)
    told = f"{story}; 1 divergence in {len(tokens)} tokens"
    ulps = math.ceil(abs(found.ulps))
    raise NearTie(told, tuple(ladder), found.margin, found.index, ulps)


def _climb(
    oracles: Oracles, k: int, again: Callable[[int], Sequence[int]], expected: Sequence[int]
) -> list[tuple[int, int | None]]:
    """First divergences by K, of the depths the runtime has and can decode with.

    What a depth fails at says nothing of the divergence already found, and leaves its rung out.
    """
    most = oracles.description.max_draft_tokens
    found: list[tuple[int, int | None]] = []
    for depth in sorted({*(d for d in LADDER if d <= most), k}):
        with contextlib.suppress(RuntimeFailure, Unsupported):
            found.append((depth, first_difference(again(depth), expected)))
    return found


def _why_no_tie(
    oracles: Oracles,
    cell: Cell,
    group: Group,
    found: Divergence,
    ladder: Sequence[tuple[int, int | None]],
) -> str | None:
    k = cell.k or 0
    if oracles.condemns(group.key, [k], AssertionError(), cell.strategy or ""):
        return f"a verify pass of {k + 1} rows is row-exact here, so nothing excuses it"
    if abs(found.ulps) > MOST_ULPS:
        return f"no near-tie: more than {MOST_ULPS} ULP apart"
    if {at for _, at in ladder} - {None, found.index}:
        return "no near-tie: the first divergence moves with K"
    try:
        _state_claim_past(oracles, cell, group, found.index)
    except AssertionError as error:
        return f"no near-tie: past it the state claim fails: {error}"
    return None


def _state_claim_past(oracles: Oracles, cell: Cell, group: Group, index: int) -> None:
    """Teacher-force K=0's tokens past the divergence and hold the state claim there."""
    if not oracles.runtime.offers(Capability.STATE):
        raise AssertionError("the runtime shows no state, so nothing proves it a tie")
    further = group.after(index + 1)
    options = oracles.options(cell)
    for k in range(1, min(max(LADDER), oracles.description.max_draft_tokens) + 1):
        for accepted in range(k + 1):
            require_shape_matched(further, options, k, accepted)


def _divergence(group: Group, index: int, token: int, expected: int) -> Divergence:
    row = group.plain_logits(index)[0]
    chosen, other = (cast("float", row[t].astype(mx.float32).item()) for t in (expected, token))
    magnitude = max(abs(chosen), abs(other), 2.0**-126)
    bits = _MANTISSA_BITS.get(row.dtype, 23)
    ulp = 2.0 ** (math.floor(math.log2(magnitude)) - bits)
    return Divergence(index, token, expected, chosen - other, (chosen - other) / ulp)


def runners_up(group: Group, length: int) -> list[Divergence]:
    """The second likeliest token at every index K=0 chose one from by a round, nearest races first.

    Args:
        group: of a runtime with logits.
        length: tokens of the K=0 stream, the prefill's included, which has no race.
    """
    found: list[Divergence] = []
    for index, expected in enumerate(group.stream(length)[1:], start=1):
        row = group.plain_logits(index)[0]
        others = mx.where(mx.arange(row.shape[0]) == expected, -mx.inf, row)
        token = cast("int", others.argmax().item())
        found.append(_divergence(group, index, token, expected))
    return sorted(found, key=lambda race: race.ulps)


def _told(ladder: Sequence[tuple[int, int | None]]) -> str:
    steps = (f"K={k} " + ("never" if at is None else f"at {at}") for k, at in ladder)
    return f"first divergence: {', '.join(steps)}"
