"""Skip-restore: one component stays at the end of the verify window."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from mtp_decoder import drafting
from mtp_decoder.rewind import pooled
from mtp_decoder.rewind.kv import KVUndo, cut_rows
from mtp_decoder.rewind.pooled import PooledUndo
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.rewind.ring import RingUndo
from reference_models.hybrid import LinearLayer
from tests.faults.editing import Rewind, wrap_undos
from tests.faults.fault import HEAD, Claim, Family, Fault, Shot, head_rows, one_round, places

STRATEGIES = ("tape", "rerun", "snapshot")


def _leave_slots(layer: int | None, slots: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """Slots of one recurrent layer, or of all, stay where the window ended."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        if not isinstance(undo, RecurrentUndo) or layer not in (None, index):
            return None

        def faulty(keep: int) -> None:
            kept = {i: undo.cache[i] for i, name in enumerate(undo.layer.slots) if name in slots}
            rewind(keep)
            for i, stale in kept.items():
                undo.cache[i] = stale

        return faulty

    wrap_undos(patch, wrap)


def _leave_layer(kind: type, layer: int, patch: pytest.MonkeyPatch) -> None:
    """One layer is not rewound at all."""
    wrap_undos(
        patch,
        lambda index, undo, _: (
            (lambda keep: None) if isinstance(undo, kind) and index == layer else None
        ),
    )


def _leave_part(part: int, patch: pytest.MonkeyPatch) -> None:
    """Of an indexed layer one part stays: 0 keys and values, 1 raw index keys."""

    def faulty(cache: Any, length: int, ratio: int) -> None:
        other = cache[1 - part]
        cut_rows(other, min(length, other.offset))
        rows = cache[2][0]
        if rows is not None:
            cache[2][0] = rows[:, : length // ratio]

    patch.setattr(pooled, "cut_pooled", faulty)


def _leave_pooled(patch: pytest.MonkeyPatch) -> None:
    def faulty(cache: Any, length: int, ratio: int) -> None:
        del ratio
        cut_rows(cache[0], length)
        cut_rows(cache[1], length)

    patch.setattr(pooled, "cut_pooled", faulty)


def _leave_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drafting, "cut_head", lambda *_: None)


def _without_ple(patch: pytest.MonkeyPatch) -> None:
    """A rerun advances the recurrence and forgets the PLE before it."""
    advance = LinearLayer.advance

    def faulty(self: LinearLayer, x: mx.array, tokens: mx.array, cache: ArraysCache) -> None:
        ple, self.ple = self.ple, None
        try:
            advance(self, x, tokens, cache)
        finally:
            self.ple = ple

    patch.setattr(LinearLayer, "advance", faulty)


def _slots(
    name: str, ids: tuple[str, ...], layer: int | None, slots: tuple[str, ...], *shots: Shot
) -> Fault:
    layers = range(5) if layer is None else (layer,)
    return Fault(
        id=f"skip-{name}",
        family=Family.SKIP_RESTORE,
        kind=ids[0][0],
        ids=ids,
        invariant="I1",
        claim=Claim.STATE,
        shots=shots,
        apply=partial(_leave_slots, layer, slots),
        breaks=places("layers", layers, *slots),
    )


def _layer(name: str, kind: type, layer: int, components: tuple[str, ...], *shots: Shot) -> Fault:
    return Fault(
        id=f"skip-{name}",
        family=Family.SKIP_RESTORE,
        kind="K",
        ids=(),
        invariant="I1",
        claim=Claim.STATE,
        shots=shots,
        apply=partial(_leave_layer, kind, layer),
        breaks=places("layers", (layer,), *components),
    )


def _indexed(
    name: str, ids: tuple[str, ...], components: tuple[str, ...], apply: Any, *shots: Shot
) -> Fault:
    return Fault(
        id=f"skip-{name}",
        family=Family.SKIP_RESTORE,
        kind="X",
        ids=ids,
        invariant="I1",
        claim=Claim.STATE,
        shots=shots,
        apply=apply,
        breaks=places("layers", (1, 3), *components),
    )


_ROWS = ("keys", "values", "offset")
_WHOLE = ("conv", "recurrent", "ngram", "ple_conv")
FAULTS = (
    _slots(
        "recurrent-rewind",
        ("R1",),
        None,
        _WHOLE,
        *(one_round("window", strategy) for strategy in STRATEGIES),
        one_round("gdn+mlx-lm"),
        one_round("flash-next"),
    ),
    _slots(
        "conv-restore",
        ("V1",),
        None,
        ("conv", "ple_conv"),
        *(one_round("window", strategy) for strategy in STRATEGIES),
        one_round("gdn-next+mlx-lm"),
        one_round("ple", k=3, accepted=0),
        one_round("flash-next", k=3, accepted=2),
    ),
    _slots("conv-of-one-layer", ("V1",), 3, ("conv",), one_round("gdn"), one_round("gdn+mlx-lm")),
    _slots(
        "recurrent-restore",
        ("R1",),
        None,
        ("recurrent",),
        *(one_round("window", strategy) for strategy in STRATEGIES),
        one_round("gdn-next+mlx-lm"),
        one_round("flash-next"),
    ),
    _slots("recurrent-of-one-layer", ("R1",), 4, ("recurrent",), one_round("gdn", "snapshot")),
    _slots(
        "ngram-restore",
        ("P1",),
        1,
        ("ngram",),
        one_round("ple", k=1, accepted=0),
        one_round("ple", "rerun", k=2, accepted=1),
        one_round("flash-next", "snapshot"),
    ),
    _slots(
        "ple-conv-restore", ("V1",), 1, ("ple_conv",), one_round("ple"), one_round("flash-next")
    ),
    Fault(
        id="skip-ple-rerun",
        family=Family.SKIP_RESTORE,
        kind="P",
        ids=("P1",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(one_round("ple", "rerun"), one_round("flash-next", "rerun")),
        apply=_without_ple,
        breaks=places("layers", (1,), *_WHOLE),
    ),
    _layer("kv-trim-first", KVUndo, 0, _ROWS, one_round("attn")),
    _layer("kv-trim-last", KVUndo, 5, _ROWS, one_round("gdn"), one_round("gdn+mlx-lm", "rerun")),
    _layer("ring-rewind", RingUndo, 0, _ROWS, one_round("window"), one_round("window", prompt=12)),
    _layer(
        "pooled-layer",
        PooledUndo,
        3,
        (*_ROWS, "index_offset", "index_keys", "open_block", "pooled"),
        one_round("qsa"),
        one_round("flash-next", "rerun"),
    ),
    _indexed(
        "pooled-truncation",
        ("X2",),
        ("pooled",),
        _leave_pooled,
        one_round("qsa"),
        one_round("qsa", k=2, accepted=0, prompt=6),
        one_round("flash-next", "snapshot"),
    ),
    _indexed("index-keys-trim", (), _ROWS, partial(_leave_part, 0), one_round("qsa")),
    _indexed(
        "raw-index-keys-trim",
        (),
        ("index_offset", "index_keys", "open_block"),
        partial(_leave_part, 1),
        one_round("qsa"),
    ),
    Fault(
        id="skip-head-trim",
        family=Family.SKIP_RESTORE,
        kind="H",
        ids=("H4",),
        invariant="I5",
        claim=Claim.HEAD,
        shots=(head_rows("window"), one_round("window"), one_round("flash-next")),
        apply=_leave_head,
        breaks=HEAD,
    ),
)
