"""Which tokens may be sampled, and how likely each is: temperature, top-p, min-p, top-k.

As in mlx-lm the three cuts look at the distribution at temperature 1, and the temperature
reshapes what is left. Each of them keeps the likeliest tokens, so that together they keep as
many as the strictest one does. Where the cut goes through equal log-probabilities, the lowest
token ids stay: mlx-lm keeps all of them (top-p) or any of them (top-k).

Everything is computed row by row in float32, so that a row's bits do not depend on the rows
beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from numbers import Real

import mlx.core as mx

from mtp_decoder.errors import DecoderError
from mtp_decoder.naming import member_of


class AcceptBy(str, Enum):
    """When a draft stands, at a temperature above 0.

    MATCH: when it is the token that is sampled there without drafts. The tokens are those of
    K=0, to the bit, for every K.
    REJECTION: with probability min(1, p/q); else a token is drawn from what p has more than q
    (Leviathan et al. 2023, arXiv:2211.17192). The law is that of K=0, the tokens are not; more
    drafts stand.
    """

    MATCH = "match"
    REJECTION = "rejection"


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temp: temperature; 0 takes the likeliest token, whatever the rest says.
        top_p: keep the likeliest tokens whose probabilities come to this; 0 and 1 keep all.
        top_k: keep this many of the likeliest; 0 keeps all.
        min_p: keep tokens at least this times as likely as the likeliest; 0 keeps all.
        seed: of every random number, together with the token's position in the sequence.
        acceptance: when a draft stands.

    Raises:
        DecoderError: a value that means nothing; the message says which.
    """

    temp: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    acceptance: AcceptBy | str = AcceptBy.MATCH

    def __post_init__(self) -> None:
        if not (_is_number(self.temp) and self.temp >= 0):
            raise DecoderError(f"temp must be 0 or more, not {self.temp!r}")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value <= 1):
                raise DecoderError(f"{name} must be in 0..1, not {value!r}")
        for name, most in (("top_k", 2**31), ("seed", 2**64)):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value < most:
                raise DecoderError(f"{name} must be a whole number from 0, not {value!r}")
        object.__setattr__(self, "acceptance", member_of(AcceptBy, self.acceptance, "acceptance"))

    def shape(self, logits: mx.array) -> mx.array:
        """Logits [rows, V] to logits of the law that is sampled, float32; -inf where cut.

        The temperature must be above 0.
        """
        wide = logits.astype(mx.float32)
        logprobs = wide - mx.logsumexp(wide, axis=-1, keepdims=True)
        below = logprobs - logprobs.max(axis=-1, keepdims=True)
        scaled = below / self.temp  # the likeliest is at 0, so that no temperature overflows it
        if not 0 < self.top_p < 1 and not self.min_p and not self.top_k:
            return scaled
        return mx.where(keep_largest(logprobs, self._count(logprobs, below)), scaled, -mx.inf)

    def probabilities(self, logits: mx.array) -> mx.array:
        """Logits [rows, V] to the probabilities that are sampled from, float32."""
        return mx.softmax(self.shape(logits), axis=-1)

    def _count(self, logprobs: mx.array, below: mx.array) -> mx.array:
        """How many tokens of each row stay, [rows, 1]."""
        count = mx.full((*logprobs.shape[:-1], 1), logprobs.shape[-1], mx.int32)
        if 0 < self.top_p < 1:
            falling = mx.exp(-mx.sort(-logprobs, axis=-1))
            above = mx.cumsum(falling, axis=-1, inclusive=False)
            total = above[..., -1:] + falling[..., -1:]
            count = mx.minimum(count, (above < self.top_p * total).sum(axis=-1, keepdims=True))
        if self.min_p:
            likely = below >= math.log(self.min_p)
            count = mx.minimum(count, likely.sum(axis=-1, keepdims=True))
        if self.top_k:
            count = mx.minimum(count, self.top_k)
        return count


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def keep_largest(values: mx.array, count: mx.array) -> mx.array:
    """Mark the `count` [rows, 1] largest of each row [rows, V]; of equals the lowest index."""
    rising = mx.sort(values, axis=-1)
    smallest = mx.take_along_axis(rising, values.shape[-1] - count, axis=-1)
    above, tied = values > smallest, values == smallest
    room = count - above.sum(axis=-1, keepdims=True)
    return above | (tied & (mx.cumsum(tied.astype(mx.int32), axis=-1) <= room))
