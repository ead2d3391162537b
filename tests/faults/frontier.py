"""Publish-frontier and zero-not-remove: rows past the frontier that stay and count."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from mtp_decoder.rewind.kv import KVUndo, cut_rows
from mtp_decoder.rewind.pooled import PooledUndo
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import FRONTIER, Claim, Family, Fault, one_round, places, shot

ANY = places(
    "layers",
    range(6),
    *("keys", "values", "offset", "conv", "recurrent", "ngram", "ple_conv"),
    *("index_offset", "index_keys", "open_block", "pooled"),
)
STOPS = (shot("emit.stop.every-index", "attn", k=3), shot("emit.stop.every-index", "window", k=2))


def _cut_to(more: int | None, patch: pytest.MonkeyPatch) -> None:
    """Where emission ends inside a block the caches keep the block, or a token more."""
    cut = Session.cut

    def faulty(self: Any, emitted: int) -> None:
        if more is not None and self._settled is not None:
            cut(self, min(emitted + more, len(self._settled.tokens)))

    patch.setattr(Session, "cut", faulty)


def _zeroed_rows(patch: pytest.MonkeyPatch) -> None:
    """Rejected keys and values become zeros and stay."""

    def faulty(self: Any, keep: int) -> None:
        cache, start = self._cache, self._start + keep
        for part in (cache.keys, cache.values):
            part[:, :, start : cache.offset] = 0

    patch.setattr(KVUndo, "rewind", faulty)


def _zeroed_pooled(patch: pytest.MonkeyPatch) -> None:
    """Pooled rows of blocks that lost a token become zeros and stay."""

    def faulty(self: Any, keep: int) -> None:
        length, cache = self._start + keep, self._cache
        cut_rows(cache[0], length)
        cut_rows(cache[1], length)
        if cache[2][0] is not None:
            cache[2][0][:, length // self._ratio :] = 0

    patch.setattr(PooledUndo, "rewind", faulty)


class _RowMore:
    """A cache that hands out a row more than it holds: what its buffer has there."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """As the cache, and a row more."""
        cache = self._cache
        cache.update_and_fetch(keys, values)
        end = cache.offset + 1
        return cache.keys[..., :end, :], cache.values[..., :end, :]


def _reads_past_the_frontier(patch: pytest.MonkeyPatch) -> None:
    """Attention of a plain step sees a row past the frontier."""
    run = KVUndo.run

    def faulty(self: Any, x: Any, tokens: Any) -> Any:
        if tokens.shape[1] > 1:
            return run(self, x, tokens)
        return self._layer(x, tokens, _RowMore(self._cache))

    patch.setattr(KVUndo, "run", faulty)


FAULTS = (
    Fault(
        id="caches-end-at-the-verified-block",
        family=Family.PUBLISH_FRONTIER,
        kind="L",
        ids=("L1", "T4"),
        invariant="I9",
        claim=Claim.STATE,
        shots=STOPS,
        apply=partial(_cut_to, None),
        breaks=ANY,
    ),
    Fault(
        id="caches-end-a-token-late",
        family=Family.PUBLISH_FRONTIER,
        kind="P",
        ids=("P5",),
        invariant="I9",
        claim=Claim.STATE,
        shots=STOPS,
        apply=partial(_cut_to, 1),
        breaks=ANY,
    ),
    Fault(
        id="closing-keeps-the-block",
        family=Family.PUBLISH_FRONTIER,
        kind="T",
        ids=("T4",),
        invariant="I9",
        claim=Claim.STATE,
        shots=STOPS,
        apply=lambda patch: edit(
            patch,
            Session.cut,
            ("self.rewind(", "if emitted > 1:\n        self.rewind("),
        ),
        breaks=ANY,
    ),
    Fault(
        id="rejected-rows-are-zeroed",
        family=Family.ZERO_NOT_REMOVE,
        kind="B",
        ids=("B1",),
        invariant="I3",
        claim=Claim.STATE,
        shots=(one_round("attn", k=4, accepted=1), one_round("window")),
        apply=_zeroed_rows,
        breaks=places("layers", range(6), "keys", "values", "offset"),
    ),
    Fault(
        id="pooled-rows-are-zeroed",
        family=Family.ZERO_NOT_REMOVE,
        kind="X",
        ids=("X2",),
        invariant="I3",
        claim=Claim.STATE,
        shots=(one_round("qsa"), one_round("flash-next", k=4, accepted=0, prompt=6)),
        apply=_zeroed_pooled,
        breaks=places("layers", (1, 3), "pooled"),
    ),
    Fault(
        id="a-dead-row-is-read",
        family=Family.ZERO_NOT_REMOVE,
        kind="K",
        ids=(),
        invariant="I3",
        claim=Claim.STATE,
        shots=(shot("memory.dead-rows.no-effect", "gdn-wide+mlx-lm"),),
        apply=_reads_past_the_frontier,
        breaks=places("layers", (2, 3), "conv", "recurrent", "keys", "values") | FRONTIER,
    ),
)
