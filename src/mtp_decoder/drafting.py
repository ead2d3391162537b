"""The head's side of a round: prefill of all pairs, chained drafts, and the rows after it.

The head's cache holds pair (h_i, t_{i+1}) at index i, one pair fewer than the target holds
tokens. `hidden` is the target's residual at its last cached position, the first half of the
next pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, cast

import mlx.core as mx

from mtp_decoder.rewind.head import cut_head, head_length
from mtp_decoder.rules import Rule
from mtp_decoder.state import arrays_of
from mtp_decoder.target import Head


class HeadRows(str, Enum):
    """Which hidden the head's rows of accepted drafts are made from.

    DRAFT: the drafting chain's own, as they were when the draft was made; costs nothing.
    TARGET: the target's verified residual; one more head pass a round with an accept.
    """

    DRAFT = "draft"
    TARGET = "target"


class Chain(NamedTuple):
    """Drafts of a round, and the probabilities [K, V] they were drawn from, if they were."""

    tokens: list[int]
    laws: mx.array | None


class Drafter:
    """A head with its cache, in step with the target.

    `settler` makes the rows of accepted drafts: the head itself, or its row-exact form.
    """

    def __init__(
        self, head: Head, caches: list[Any], policy: HeadRows, settler: Head | None = None
    ) -> None:
        self._head = head
        self._settler = head if settler is None else settler
        self._caches = caches
        self.policy = policy
        self.hidden: mx.array | None = None
        self._checkpoint = 0
        self._anchor = mx.zeros((1, 1), mx.int32)
        self._next: tuple[mx.array, mx.array] | None = None

    @property
    def length(self) -> int:
        """Pairs in the head's cache."""
        return head_length(self._caches)

    @property
    def place(self) -> tuple[int, mx.array | None]:
        """Pairs in the head's cache, and the hidden that waits: what `go_back` takes."""
        return self.length, self.hidden

    def go_back(self, place: tuple[int, mx.array | None]) -> None:
        """Cut the pairs that came after a place, and wait with its hidden again."""
        length, self.hidden = place
        cut_head(self._head.layers, self._caches, length)

    def prefill(self, hidden: mx.array, tokens: mx.array) -> None:
        """Run the prompt's pairs: the residuals [B, T, W] with the tokens [B, T] they produced.

        Where an earlier chunk left a residual without its token, that pair comes first. The
        last residual of the prompt waits for the first token to be drafted from.

        Args:
            hidden: residuals of one chunk.
            tokens: the chunk's own tokens; the pairs use them shifted by one.
        """
        earlier = [] if self.hidden is None else [self.hidden]
        rows = mx.concatenate([*earlier, hidden[:, :-1]], axis=1)
        following = tokens if self.hidden is not None else tokens[:, 1:]
        if following.shape[1]:
            self._head(rows, following, self._caches)
        self.hidden = hidden[:, -1:]

    def draft(
        self, anchor: int, k: int, rule: Rule, position: int, forced: Sequence[int] | None = None
    ) -> Chain:
        """Chain k drafts after the anchor; k rows enter the head's cache.

        Args:
            anchor: the last emitted token.
            k: number of drafts.
            rule: chooses each draft from the head's logits.
            position: of the first draft in the sequence.
            forced: drafts to inject: the chain runs as if the head had made them.
        """
        assert self.hidden is not None, "prefill comes first"
        self._checkpoint = self.length
        self._anchor = mx.array([[anchor]])
        hidden, token = self.hidden, self._anchor
        drafts: list[mx.array] = []
        laws: list[mx.array] = []
        for j in range(k):
            logits, hidden = self._head(hidden, token, self._caches)
            if forced is not None:
                token = mx.array([[forced[j]]])
            else:
                token, law = rule.draft(logits[:, -1], position + j)
                laws += [] if law is None else [law]
            drafts.append(token)
        self._next = (hidden, token)
        # The caches, too: no draft may have needed the last index keys yet.
        mx.eval(drafts, laws, hidden, arrays_of(self._caches))
        tokens = [cast("int", token.item()) for token in drafts]
        return Chain(tokens, mx.concatenate(laws) if laws else None)

    def settle(self, drafts: Sequence[int], accepted: int, verified: mx.array) -> None:
        """Leave the rows of the anchor and of the accepted drafts, and take the next hidden.

        Args:
            drafts: what was verified this round.
            accepted: how many of them stand.
            verified: the target's residual of the round [B, K+1, W].
        """
        if self.policy is HeadRows.TARGET:
            self._settle_on_target(drafts, accepted, verified)
        else:
            self._settle_on_drafts(accepted)
        self.hidden = verified[:, accepted : accepted + 1]

    def abandon(self) -> None:
        """Cut the rows of a round that is given up."""
        cut_head(self._head.layers, self._caches, self._checkpoint)

    def _settle_on_drafts(self, accepted: int) -> None:
        cut_head(self._head.layers, self._caches, self._checkpoint + accepted + 1)
        if self.length == self._checkpoint + accepted:
            assert self._next is not None
            self._head(*self._next, self._caches)

    def _settle_on_target(self, drafts: Sequence[int], accepted: int, verified: mx.array) -> None:
        # Kept rows from an earlier settling of the same round are the same bits.
        cut_head(self._head.layers, self._caches, self._checkpoint + 1)
        if self.length == self._checkpoint:
            assert self.hidden is not None
            self._head(self.hidden, self._anchor, self._caches)
        if accepted:
            tokens = mx.array([list(drafts[:accepted])])
            self._settler(verified[:, :accepted], tokens, self._caches)
