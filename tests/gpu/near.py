"""The fast mode against K=0: how many blocks differ, how many choices, and how near those were.

Teacher-forced: every block verifies the tokens of K=0 from the caches of K=0, so that one choice
made otherwise does not hide the next.
"""

from __future__ import annotations

import math
from typing import Any, cast

import mlx.core as mx

from mtp_conformance.exactness import bits_equal
from tests.gpu.exact import PROMPT, plain, session
from tests.gpu.models import Subject
from tests.gpu.rows import Row

MOST_ULPS = 4
"""As the suite: a nearer choice may be a tie, a farther one is none."""
_MANTISSA_BITS = {mx.float32: 23, mx.bfloat16: 7, mx.float16: 10}


def near_ties(subject: Subject, pair: Any, k: int, tokens: int) -> Row:
    """Blocks of K+1 rows of the fast mode beside the same rows one by one."""
    stream = plain(pair, tokens + k + 2)
    base = session(pair)
    blocks, differing, rows, largest = 0, 0, 0, 0.0
    margins: list[float] = []
    while len(base.history) - PROMPT < tokens:
        emitted = len(base.history) - PROMPT
        block = base.fork().round(drafts=stream[emitted : emitted + k]).logits
        steps = mx.concatenate([base.round(drafts=()).logits for _ in range(k + 1)])
        blocks, rows = blocks + 1, rows + k + 1
        differing += bits_equal(block, steps) is not None
        apart = mx.abs(block.astype(mx.float32) - steps.astype(mx.float32)).max()
        largest = max(largest, _number(apart))
        margins += _margins(block, steps)
    return {
        "part": "near",
        "model": subject.name,
        "dtype": subject.dtype,
        "bits": subject.quantised,
        "k": k,
        "blocks": blocks,
        "blocks_differing": differing,
        "rows": rows,
        "largest_difference": largest,
        "flips": len(margins),
        "margins_ulp": [round(margin, 2) for margin in margins],
        "beyond_ulps": sum(margin > MOST_ULPS for margin in margins),
    }


def _margins(block: mx.array, steps: mx.array) -> list[float]:
    """Margins of K=0's choice over the block's, where those differ, in ULP at that magnitude."""
    theirs, ours = (cast("list[int]", a.argmax(axis=-1).tolist()) for a in (block, steps))
    found: list[float] = []
    for row, (other, own) in enumerate(zip(theirs, ours, strict=True)):
        if other != own:
            best, second = _number(steps[row, own]), _number(steps[row, other])
            exponent = math.frexp(max(abs(best), abs(second)))[1] - 1
            found.append((best - second) / 2.0 ** (exponent - _MANTISSA_BITS[steps.dtype]))
    return found


def _number(scalar: mx.array) -> float:
    return cast("float", scalar.item())


def ladder(subject: Subject, pair: Any, tokens: int) -> Row:
    """Where the stream of the fast mode first leaves K=0's, for K = 1, 2, 3, drafts being right."""
    stream = plain(pair, tokens + 5)
    found: dict[str, int | None] = {}
    for k in (1, 2, 3):
        drafted = session(pair)
        emitted = drafted.history[PROMPT:]
        while len(emitted) < tokens and emitted == stream[: len(emitted)]:
            emitted += drafted.round(drafts=stream[len(emitted) : len(emitted) + k]).tokens
        wrong = [at for at, token in enumerate(emitted) if token != stream[at]]
        found[str(k)] = wrong[0] if wrong else None
    of = {"model": subject.name, "dtype": subject.dtype, "bits": subject.quantised}
    return {"part": "ladder", **of, "tokens": tokens, "first_divergence": found}
