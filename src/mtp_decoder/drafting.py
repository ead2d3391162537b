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
from mtp_decoder.submitting import by_parts
from mtp_decoder.target import Head


class HeadRows(str, Enum):
    """Which hidden the head's rows of accepted drafts are made from.

    DRAFT: the drafting chain's own, as they were when the draft was made; costs nothing.
    TARGET: the target's verified residual; one more head pass a round with an
    accept, unless the next round's first draft takes the rows along.
    """

    DRAFT = "draft"
    TARGET = "target"


class Owed(NamedTuple):
    """Pairs that stand without rows: hidden [1, n, W], tokens [1, n], the first one's index."""

    hidden: mx.array
    tokens: mx.array
    first: int


class Place(NamedTuple):
    """Where a head stands: rows in its cache, the hidden that waits, and rows it owes."""

    length: int
    hidden: mx.array | None
    owed: Owed | None


class Chain(NamedTuple):
    """Drafts of a round, and the probabilities [K, V] they were drawn from, if they were."""

    tokens: list[int]
    laws: mx.array | None


class Drafter:
    """A head with its cache, in step with the target.

    Where another round follows at once, rows of accepted drafts may be owed: they are made in one
    pass with the first draft of that round, or by `pay`.

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
        self._owed: Owed | None = None
        # Several rows at once do not have the bits of one under a settler of its own; and MLX's
        # CUDA attention is built anew for several queries of every number of keys (docs/gpu.md).
        self._joins = self._settler is head and not mx.cuda.is_available()
        self._anchor = mx.zeros((1, 1), mx.int32)
        self._next: tuple[mx.array, mx.array] | None = None

    @property
    def length(self) -> int:
        """Pairs in the head's cache."""
        return head_length(self._caches)

    @property
    def place(self) -> Place:
        """What `go_back` takes."""
        length = self.length if self._owed is None else self._owed.first
        return Place(length, self.hidden, self._owed)

    def go_back(self, place: Place) -> None:
        """Cut the pairs that came after a place, and wait with its hidden again."""
        length, self.hidden, self._owed = place
        cut_head(self._head.layers, self._caches, length)

    @property
    def owes(self) -> bool:
        """Whether rows of accepted drafts are still to be made."""
        return self._owed is not None

    def pay(self) -> None:
        """Make the rows that are owed; they stay owed if this fails."""
        self._make_owed()
        mx.eval(arrays_of(self._caches))
        self._owed = None

    def _make_owed(self) -> None:
        if self._owed is not None:
            cut_head(self._head.layers, self._caches, self._owed.first)  # an earlier try failed
            self._settler(self._owed.hidden, self._owed.tokens, self._caches)

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
        """Chain k drafts after the anchor; k rows enter the head's cache, after those it owes.

        Args:
            anchor: the last emitted token.
            k: number of drafts.
            rule: chooses each draft from the head's logits.
            position: of the first draft in the sequence.
            forced: drafts to inject: the chain runs as if the head had made them.
        """
        assert self.hidden is not None, "prefill comes first"
        self._anchor = mx.array([[anchor]])
        hidden, token = self.hidden, self._anchor
        if k and self._joins and (owed := self._owed) is not None:
            cut_head(self._head.layers, self._caches, owed.first)
            self._checkpoint = owed.first + owed.tokens.shape[1]
            hidden = mx.concatenate([owed.hidden, hidden], axis=1)
            token = mx.concatenate([owed.tokens, token], axis=1)
        else:
            self._make_owed()
            self._checkpoint = self.length
        drafts: list[mx.array] = []
        laws: list[mx.array] = []
        early = by_parts()
        for j in range(k):
            logits, hidden = self._head(hidden, token, self._caches)
            if hidden.shape[1] > 1:
                hidden = hidden[:, -1:]
            if forced is not None:
                token = mx.array([[forced[j]]])
            else:
                token, law = rule.draft(logits[:, -1], position + j)
                laws += [] if law is None else [law]
            drafts.append(token)
            if early:
                mx.async_eval(token)
        self._next = (hidden, token)
        # The caches, too: no draft may have needed the last index keys yet.
        mx.eval(drafts, laws, hidden, arrays_of(self._caches))
        self._owed = None
        tokens = [cast("int", token.item()) for token in drafts]
        return Chain(tokens, mx.concatenate(laws) if laws else None)

    def settle(
        self,
        drafts: Sequence[int],
        accepted: int,
        verified: mx.array,
        *,
        row: mx.array,
        later: bool = False,
    ) -> None:
        """Leave the rows of the anchor and of the accepted drafts, and take the next hidden.

        Args:
            drafts: what was verified this round.
            accepted: how many of them stand.
            verified: the target's residual of the round [B, K+1, W].
            row: the position of it that the next pair begins with [B, 1, W].
            later: owe rows that a pass would have to make.
        """
        self._owed = None
        if self.policy is HeadRows.TARGET:
            self._settle_on_target(drafts, accepted, verified)
        else:
            self._settle_on_drafts(accepted)
        if not later:
            self._make_owed()
            self._owed = None
        self.hidden = row

    def _settle_on_drafts(self, accepted: int) -> None:
        cut_head(self._head.layers, self._caches, self._checkpoint + accepted + 1)
        if self.length == self._checkpoint + accepted:
            assert self._next is not None
            self._owed = Owed(*self._next, self.length)

    def _settle_on_target(self, drafts: Sequence[int], accepted: int, verified: mx.array) -> None:
        # Kept rows from an earlier settling of the same round are the same bits.
        cut_head(self._head.layers, self._caches, self._checkpoint + 1)
        if self.length == self._checkpoint:
            assert self.hidden is not None
            self._head(self.hidden, self._anchor, self._caches)
        if accepted:
            tokens = mx.array([list(drafts[:accepted])])
            self._owed = Owed(verified[:, :accepted], tokens, self.length)
