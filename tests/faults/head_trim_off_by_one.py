"""The head's cache loses the row of the last accepted draft."""

from collections.abc import Sequence
from typing import Any

import pytest

from mtp_decoder import drafting
from mtp_decoder.target import Layer
from tests.faults.fault import Fault, one_reject


def _apply(patch: pytest.MonkeyPatch) -> None:
    cut_head = drafting.cut_head

    def faulty(layers: Sequence[Layer], caches: Sequence[Any], length: int) -> None:
        cut_head(layers, caches, length - 1)

    patch.setattr(drafting, "cut_head", faulty)


FAULT = Fault(
    id="head-trim-off-by-one",
    breaks=frozenset(
        (f"head.{layer}", component)
        for layer in (0, 1)
        for component in ("keys", "values", "offset", "index_offset", "index_keys", "open_block")
    ),
    cells=(one_reject("gdn"), one_reject("gdn-mtp2"), one_reject("flash-next")),
    apply=_apply,
)
