"""Experts on disk: a slot, a file, a count or an order of rows is not what it is taken for."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable

import pytest

from mtp_decoder.experts import shards
from mtp_decoder.experts.grouped import Grouped
from mtp_decoder.experts.store import ExpertStore
from mtp_decoder.rewind.rerun import RerunUndo
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, shot

BITS = "experts.offload.every-budget"
COUNTS = "experts.counters.exact"
READS = "experts.rewind.reads-none"
ONCE = "experts.prefill.reads-once"
REFUSED = "experts.files.refused"
SHORT = "experts.files.short-read"
CANCEL = "experts.cancel.mid-read"
GROUPED = "experts.grouped.equals-ungrouped"
READ = "    self._read(self.own, places)"


def _recycled_unevaluated(patch: pytest.MonkeyPatch) -> None:
    """A slot is filled anew while something still has to be computed from it."""
    edit(patch, ExpertStore.settle, ("mx.eval(*arrays, self._lent)", "mx.eval(*arrays)"))


def _layers_mixed_up(patch: pytest.MonkeyPatch) -> None:
    """An expert in a slot is known by its number, whatever layer it is of."""
    edit(
        patch,
        ExpertStore.acquire,
        (
            "missing = [key for key in keys if key not in self._place]",
            "found = {key.expert: slot for key, slot in self._place.items()}\n"
            "    self._place |= {key: found[key.expert] for key in keys if key.expert in found}\n"
            "    missing = [key for key in keys if key not in self._place]",
        ),
    )


def _evicted_in_use(patch: pytest.MonkeyPatch) -> None:
    """To make room an expert leaves that the same pass needs."""
    edit(patch, ExpertStore._vacate, (" if key not in keep", ""))


def _known_before_read(patch: pytest.MonkeyPatch) -> None:
    """An expert counts as being in its slot before it was read."""
    edit(
        patch,
        ExpertStore.acquire,
        ("    self._place |= places\n", ""),
        (
            "    self._read(self.own, places)",
            "    self._place |= places\n    self._read(self.own, places)",
        ),
    )


def _slot_lost(patch: pytest.MonkeyPatch) -> None:
    """A slot whose read failed is neither free nor taken."""
    edit(
        patch,
        ExpertStore.acquire,
        ("    self._free = self._free[len(places) :]\n", ""),
        (READ, f"    self._free = self._free[len(places) :]\n{READ}"),
    )


def _layer_run_again(patch: pytest.MonkeyPatch) -> None:
    """A rerun runs whole layers, experts too, where the mixer alone is enough."""
    edit(patch, RerunUndo.rewind, ("self.layer.advance(", "self.layer("))


def _misses_as_hits(patch: pytest.MonkeyPatch) -> None:
    """Every request counts as a hit, read or not."""
    edit(
        patch,
        ExpertStore.acquire,
        ("self.counts.hits += len(keys) - len(missing)", "self.counts.hits += len(keys)"),
    )


def _bytes_by_slot(patch: pytest.MonkeyPatch) -> None:
    """Bytes are counted for the slots there are, not for what was read."""
    edit(
        patch,
        ExpertStore._read,
        (
            "self.counts.bytes_read += done.result()",
            "self.counts.bytes_read += done.result() and self.own.count * self.expert_bytes",
        ),
    )


def _chunk_by_chunk(patch: pytest.MonkeyPatch) -> None:
    """Every chunk of a prompt goes through all layers before the next."""
    edit(
        patch,
        Session._run_prompt,
        ("if through_whole_layers(self._target.layers, len(tokens)):", "if not tokens:"),
    )


def _left_sorted(patch: pytest.MonkeyPatch) -> None:
    """Rows are put back by the order they were sorted by, not by its inverse."""
    edit(patch, Grouped.__call__, ("[mx.argsort(order)]", "[order]"))


def _whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """Of the shards that an index lists those are taken that exist."""
    edit(
        patch,
        shards._files,
        ("if not (folder / name).is_file():", "if not name:"),
        (
            "(folder / name for name in names)",
            "(folder / name for name in names if (folder / name).is_file())",
        ),
    )


def _ends_as_zeros(patch: pytest.MonkeyPatch) -> None:
    """What a file no longer holds is taken for read."""
    edit(
        patch,
        shards.Shards.read,
        ("if not count:", "if not count:\n            return done\n        if False:"),
    )


def _one_slot_at_least(patch: pytest.MonkeyPatch) -> None:
    """A budget below one expert gives one slot all the same."""
    edit(
        patch,
        ExpertStore.__init__,
        (
            "if budget < self.expert_bytes:",
            "budget = max(budget, self.expert_bytes)\n    if not budget:",
        ),
    )


def _fault(
    name: str,
    kind: str,
    family: Family,
    invariant: str,
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
) -> Fault:
    return Fault(
        id=name,
        family=family,
        kind=kind,
        ids=(),
        invariant=invariant,
        claim=Claim.ANY,
        shots=shots,
        apply=apply,
    )


FAULTS = (
    _fault(
        "slot-filled-before-evaluation",
        "M",
        Family.LAZY_DEBT,
        "I12",
        _recycled_unevaluated,
        shot(BITS, "gdn-moe", k=1),
        shot(BITS, "gdn-moe+mlx-lm", k=1),
    ),
    _fault(
        "slot-of-another-layer",
        "L",
        Family.STALE_KEY,
        "I1",
        _layers_mixed_up,
        shot(BITS, "gdn-moe", k=1),
    ),
    _fault(
        "slot-in-use-is-evicted",
        "L",
        Family.CAP,
        "I1",
        _evicted_in_use,
        shot(BITS, "gdn-moe", k=3),
        shot(BITS, "flash-next", k=3),
    ),
    _fault(
        "slot-known-before-it-is-read",
        "L",
        Family.PUBLISH_FRONTIER,
        "I8",
        _known_before_read,
        shot(SHORT, "gdn-moe"),
    ),
    _fault(
        "slot-lost-when-a-read-fails", "L", Family.LATCH, "I8", _slot_lost, shot(CANCEL, "gdn-moe")
    ),
    _fault(
        "rerun-runs-experts",
        "C",
        Family.PATH_GAP,
        "I12",
        _layer_run_again,
        shot(READS, "gdn-moe", "rerun", k=3),
        shot("rewind.experts.not-called", "gdn-moe", "rerun", k=1),
    ),
    _fault(
        "misses-count-as-hits", "C", Family.COUNTER, "I12", _misses_as_hits, shot(COUNTS, "gdn-moe")
    ),
    _fault(
        "bytes-counted-by-slot", "C", Family.COUNTER, "I12", _bytes_by_slot, shot(COUNTS, "gdn-moe")
    ),
    _fault(
        "prompt-chunk-by-chunk",
        "C",
        Family.PATH_GAP,
        "I12",
        _chunk_by_chunk,
        shot(ONCE, "gdn-moe", prompt=9),
    ),
    _fault(
        "rows-left-sorted",
        "N",
        Family.NUMERIC_ROUTE,
        "N",
        _left_sorted,
        shot(GROUPED, "gdn-moe", k=31, prompt=33),
    ),
    _fault(
        "shards-that-are-there", "L", Family.CAP, "I8", _whatever_is_there, shot(REFUSED, "gdn-moe")
    ),
    _fault(
        "end-of-file-is-zeros",
        "L",
        Family.ZERO_NOT_REMOVE,
        "I8",
        _ends_as_zeros,
        shot(SHORT, "gdn-moe"),
    ),
    _fault(
        "budget-rounded-up", "L", Family.CAP, "I8", _one_slot_at_least, shot(REFUSED, "gdn-moe")
    ),
)
