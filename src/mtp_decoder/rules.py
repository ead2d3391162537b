"""How a draft is chosen and when it stands: one rule a way of decoding.

| rule | token of a row | draft stands |
|---|---|---|
| `Greedy` | the likeliest, ties to the lowest id | if it is that token |
| `Sampled` | what the caller's sampler takes | if it is that token |
| `Matching` | drawn with the position's own noise | if it is that token |
| `Rejecting` | drawn from p, or from what p has more than q | with probability min(1, p/q) |

A position is a token's index in the whole sequence, prompt and cached prefix included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import mlx.core as mx

from mtp_decoder.errors import DecoderError, described
from mtp_decoder.randomness import Purpose, gumbel, uniform
from mtp_decoder.rejecting import draw, judge
from mtp_decoder.sampling import AcceptBy, Sampling

Sampler = Callable[[mx.array], mx.array]


class Draft(NamedTuple):
    """One draft of the head: its token [1, 1], and the law [1, V] it was drawn from if known."""

    token: mx.array
    law: mx.array | None


class Rule(Protocol):
    """A way of choosing tokens."""

    def draft(self, logits: mx.array, position: int) -> Draft:
        """The draft for a position, from the head's logits [1, V]; evaluates nothing."""
        ...

    def judge(
        self, drafts: Sequence[int], logits: mx.array, position: int, laws: mx.array | None
    ) -> list[int]:
        """The tokens of the rows up to the first that is not its draft, that one included.

        Args:
            drafts: one for every row, or for every row but the last.
            logits: [rows, V] of the target, processed.
            position: of the first row's token.
            laws: [drafts, V] the drafts were drawn from; None if they were given as they are.
        """
        ...


class Told(Rule, Protocol):
    """A rule that tells a row's token without looking at any number.

    So the next step can be built on the token before it is computed. A caller's sampler is none:
    it might be asked for a token that is never wanted, and notice.
    """

    def tell(self, logits: mx.array, position: int) -> mx.array:
        """Tokens [rows] of logits [rows, V], the first row's at `position`; evaluates nothing."""
        ...


class Greedy:
    """The likeliest token."""

    def tell(self, logits: mx.array, position: int) -> mx.array:
        """See `Told`."""
        del position
        return logits.argmax(-1)

    def draft(self, logits: mx.array, position: int) -> Draft:
        """See `Rule`."""
        del position
        return Draft(logits.argmax(-1, keepdims=True), None)

    def judge(
        self, drafts: Sequence[int], logits: mx.array, position: int, laws: mx.array | None
    ) -> list[int]:
        """See `Rule`."""
        del position, laws
        return while_equal(logits.argmax(-1), drafts)


class Sampled:
    """The caller's sampler decides: log-probabilities [rows, V] to token ids [rows]."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def draft(self, logits: mx.array, position: int) -> Draft:
        """The likeliest token; see `Rule`."""
        del position
        return Draft(logits.argmax(-1, keepdims=True), None)

    def judge(
        self, drafts: Sequence[int], logits: mx.array, position: int, laws: mx.array | None
    ) -> list[int]:
        """See `Rule`."""
        del position, laws
        made = cast("Any", self._sampler(normalise(logits)))  # a stranger's code: anything
        rows = logits.shape[:1]
        ids = isinstance(made, mx.array) and mx.issubdtype(made.dtype, mx.integer)
        if not (ids and made.shape == rows):
            raise DecoderError(
                f"the sampler returned {described(made)}: let it return token ids {rows}, one a row"
            )
        return while_equal(made, drafts)


class Matching:
    """Sampled by Gumbel's trick: the largest of shaped logits and the position's noise."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def draft(self, logits: mx.array, position: int) -> Draft:
        """See `Rule`."""
        return Draft(self._pick(logits, position)[:, None], None)

    def judge(
        self, drafts: Sequence[int], logits: mx.array, position: int, laws: mx.array | None
    ) -> list[int]:
        """See `Rule`."""
        del laws
        return while_equal(self._pick(logits, position), drafts)

    def tell(self, logits: mx.array, position: int) -> mx.array:
        """See `Told`."""
        return self._pick(logits, position)

    def _pick(self, logits: mx.array, position: int) -> mx.array:
        """Tokens [rows] from logits [rows, V], the first row's at `position`."""
        rows, size = logits.shape
        seed = self._sampling.seed
        noise = mx.stack([gumbel(seed, position + i, size) for i in range(rows)])
        return mx.argmax(self._sampling.shape(logits) + noise, axis=-1)


class Rejecting:
    """Rejection sampling against the law the drafts were drawn from."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def draft(self, logits: mx.array, position: int) -> Draft:
        """See `Rule`."""
        law = self._sampling.probabilities(logits)
        u = uniform(self._sampling.seed, position, Purpose.DRAFT)
        return Draft(draw(law, u)[:, None], law)

    def judge(
        self, drafts: Sequence[int], logits: mx.array, position: int, laws: mx.array | None
    ) -> list[int]:
        """See `Rule`. Given drafts are certain: the law they were drawn from has nothing else."""
        seed = self._sampling.seed
        if laws is None:
            tokens = mx.array(list(drafts), mx.int32)[:, None]
            laws = (mx.arange(logits.shape[-1]) == tokens).astype(mx.float32)
        return judge(
            drafts,
            self._sampling.probabilities(logits),
            laws,
            accepting=lambda i: uniform(seed, position + i, Purpose.ACCEPT),
            drawing=lambda i: uniform(seed, position + i, Purpose.TOKEN),
        )


def make_rule(sampling: Sampling, sampler: Sampler | None = None) -> Rule:
    """The rule of a session.

    Raises:
        DecoderError: a sampler and a temperature, or a sampler and rejection, which has to know
            the law and not the token alone.
    """
    if sampler is not None:
        if sampling.temp or sampling.acceptance == AcceptBy.REJECTION:
            raise DecoderError(
                "give a sampler, or temp and acceptance, not both: a sampler's law is unknown"
            )
        return Sampled(sampler)
    if not sampling.temp:
        return Greedy()
    rejection = sampling.acceptance == AcceptBy.REJECTION
    return Rejecting(sampling) if rejection else Matching(sampling)


def normalise(logits: mx.array) -> mx.array:
    """Log-probabilities, in the dtype of the logits, as mlx-lm computes them."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def while_equal(tokens: mx.array, drafts: Sequence[int]) -> list[int]:
    """The tokens up to the first that is not its draft."""
    found = cast("list[int]", tokens.tolist())
    for i, draft in enumerate(drafts):
        if found[i] != draft:
            return found[: i + 1]
    return found
