"""Rejected keys and values stay in the cache."""

import pytest

from mtp_decoder.rewind.kv import KVUndo
from tests.faults.fault import Fault, one_reject


def _apply(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVUndo, "rewind", lambda *_: None)


FAULT = Fault(
    id="skip-kv-trim",
    breaks=frozenset(
        (f"layers.{layer}", component)
        for layer in (0, 1, 2, 5)
        for component in ("keys", "values", "offset")
    ),
    cells=(one_reject("attn"), one_reject("gdn"), one_reject("gdn+mlx-lm", "rerun")),
    apply=_apply,
)
