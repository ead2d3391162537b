"""Pooled rows of blocks that lost a token stay."""

import pytest
from mlx_lm.models.cache import CacheList

from mtp_decoder.rewind import pooled
from tests.faults.fault import Fault, one_reject


def _apply(patch: pytest.MonkeyPatch) -> None:
    def faulty(cache: CacheList, length: int, ratio: int) -> None:
        del ratio
        pooled.cut_rows(cache[0], length)
        pooled.cut_rows(cache[1], length)

    patch.setattr(pooled, "cut_pooled", faulty)


FAULT = Fault(
    id="skip-pooled-truncation",
    breaks=frozenset((f"layers.{layer}", "pooled") for layer in (1, 3)),
    cells=(one_reject("qsa"), one_reject("flash-next", "snapshot")),
    apply=_apply,
)
