"""Every lifecycle case fails a runtime that breaks what it is about, where it broke it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from mlx_lm.models.cache import QuantizedKVCache

from conformance.lifecycle.test_cancel import test_leaves_nothing as cancel_case
from conformance.lifecycle.test_continue import test_after_rounds as after_rounds_case
from conformance.lifecycle.test_continue import test_after_stop as after_stop_case
from conformance.lifecycle.test_exceptions import test_in_a_prompt as prompt_case
from conformance.lifecycle.test_exceptions import test_in_a_round as round_case
from conformance.lifecycle.test_fork import test_as_if_alone as fork_case
from conformance.lifecycle.test_published import test_shown_state as shown_case
from conformance.lifecycle.test_save import test_goes_on as save_case
from conformance.lifecycle.test_save import test_saved_file as file_case
from conformance.rewind.test_quantised import test_every_accept as quantised_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.adapters.builtin import BuiltinSession, make_runtime
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import Outcome, Runtime
from mtp_decoder.rewind.kv import KVUndo
from tests.fakes.forgets_hidden import ForgetsHidden
from tests.fakes.forgets_windows import ForgetsWindows
from tests.fakes.ignores_failures import (
    IgnoresFailures,
    LatchedRuntime,
    SilentSession,
)
from tests.fakes.ignores_kv_bits import IgnoresKvBits
from tests.fakes.keeps_head_rows import KeepsHeadRows
from tests.fakes.live_views import LiveViews
from tests.fakes.rounds_differently import RoundsDifferently
from tests.fakes.saves_by_reference import SavesByReference
from tests.fakes.stops_late import HistorySession, StopsLate
from tests.faults.registry import seeded

Make = Callable[[Runtime], Oracles]
CELL = Cell("flash-next", "tape", None, None, "float32", 5)
DEEP = Cell("flash-next", "tape", 3, None, "float32", 5)
WIDE = Cell("gdn-wide", "tape", 4, None, "float32", 5, (("kv_bits", 8), ("kv_group_size", 32)))


def test_fork_without_windows(oracles_of: Make) -> None:
    """A copy that forgot a component is found before the fork has moved."""
    with pytest.raises(StateDiffers, match="at the place of the fork") as caught:
        fork_case(oracles_of(ForgetsWindows()), CELL, Witness())
    assert (caught.value.layer, caught.value.component) == ("layers.0", "conv")


def test_restored_without_the_hidden(oracles_of: Make, tmp_path: Path) -> None:
    """A file without the waiting hidden fails before any round."""
    with pytest.raises(StateDiffers, match="the state when it was saved") as caught:
        save_case(oracles_of(ForgetsHidden()), CELL, Witness(), tmp_path)
    assert (caught.value.layer, caught.value.component) == ("head.frontier", "hidden")


def test_saved_by_reference(oracles_of: Make, tmp_path: Path) -> None:
    """A file that is a reference has moved with the saver."""
    with pytest.raises(StateDiffers, match="the state after round 2, when it was saved"):
        file_case(oracles_of(SavesByReference()), CELL, Witness(), tmp_path)


def test_live_views(oracles_of: Make) -> None:
    """Arrays that were shown and are written into later differ from their copies."""
    with pytest.raises(StateDiffers, match="what was shown after round 0"):
        shown_case(oracles_of(LiveViews()), CELL, Witness())


def test_cancelled_by_half(oracles_of: Make) -> None:
    """Rows of the head that a cancel leaves are named."""
    with pytest.raises(StateDiffers, match="was cancelled") as caught:
        cancel_case(oracles_of(KeepsHeadRows()), DEEP, Witness())
    assert caught.value.layer == "head.0"


def test_stopped_late(oracles_of: Make) -> None:
    """Caches that are ahead of what was emitted make another next turn."""
    with pytest.raises(AssertionError, match="a cold run over everything so far"):
        after_stop_case(oracles_of(StopsLate()), DEEP, Witness())


def test_turn_without_history(oracles_of: Make) -> None:
    """A next turn that starts from the prompt alone is another one."""
    with pytest.raises(AssertionError, match="a cold run over everything so far"):
        after_rounds_case(oracles_of(StopsLate(HistorySession)), CELL, Witness())


def test_failed_round_is_not_undone(oracles_of: Make) -> None:
    """A session ahead of its frontier that goes on fails."""
    with pytest.raises(StateDiffers, match=r"a round whose evaluation \d failed"):
        round_case(oracles_of(IgnoresFailures()), DEEP, Witness())


def test_failed_round_is_hidden(oracles_of: Make) -> None:
    """A failure that a runtime swallows must not change what the round gives."""
    with pytest.raises(AssertionError, match="a round in which nothing failed"):
        round_case(oracles_of(IgnoresFailures(SilentSession)), DEEP, Witness())


def test_failed_round_latches(oracles_of: Make) -> None:
    """A refusal binds the session that failed, and no other one."""
    LatchedRuntime.failed = False
    with pytest.raises(RuntimeFailure, match="the runtime failed earlier"):
        round_case(oracles_of(LatchedRuntime()), DEEP, Witness())


def test_failed_prompt_is_not_undone(oracles_of: Make) -> None:
    """A prompt that is run after what a failed one left gives another state."""
    with pytest.raises(AssertionError, match="a prefill in which nothing failed"):
        prompt_case(oracles_of(IgnoresFailures()), CELL, Witness())


def test_no_evaluation_to_fail(oracles_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no evaluation can be made to fail nothing was shown."""
    monkeypatch.setattr("mtp_conformance.injecting._EVALUATIONS", ())
    with pytest.raises(Inconclusive, match="failed 0 of at least 1"):
        round_case(oracles_of(IgnoresFailures()), DEEP, Witness())


def test_plain_rows(oracles_of: Make) -> None:
    """A runtime that ignores kv_bits passes nothing by it."""
    with pytest.raises(AssertionError, match=r"plain rows are in layers\.1\.keys, layers\.3"):
        quantised_case(oracles_of(IgnoresKvBits()), WIDE, Witness())


def test_packed_rows_that_round_differently(
    oracles_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without row-exact passes packed rows are still held to a run of the same shape.

    A rewind that gets one array of a packed row wrong, whatever was rejected, is named.
    """
    cell, runtime = replace(WIDE, dtype="bfloat16"), RoundsDifferently()
    runtime.layer = 1
    quantised_case(oracles_of(runtime), cell, Witness())
    rewind = KVUndo.rewind

    def faulty(self: KVUndo, keep: int) -> None:
        rewind(self, keep)
        cache: Any = vars(self)["_cache"]
        if isinstance(cache, QuantizedKVCache):
            packed, scales, biases = cast("tuple[mx.array, ...]", cache.keys)
            cache.keys = (packed, scales * 2, biases)

    monkeypatch.setattr(KVUndo, "rewind", faulty)
    with pytest.raises(StateDiffers) as caught:
        quantised_case(oracles_of(runtime), cell, Witness())
    assert (caught.value.layer, caught.value.component) == ("layers.1", "keys_scales")


def test_packed_rows_of_other_values(oracles_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that no rounding brings about are condemned, though every draw has them."""
    verify = BuiltinSession.round

    def faulty(self: BuiltinSession, drafts: Sequence[int]) -> Outcome:
        outcome, caches = verify(self, drafts), vars(self.session)["_caches"]
        for cache in [c for c in caches if drafts and isinstance(c, QuantizedKVCache)]:
            packed, *rest = cast("tuple[mx.array, ...]", cache.keys)
            kept = mx.arange(packed.shape[2])[:, None] > cache.offset - outcome.accepted - 2
            cache.keys = (mx.where(kept, ~packed, packed), *rest)
        return outcome

    monkeypatch.setattr(BuiltinSession, "round", faulty)
    with pytest.raises(StateDiffers, match=r"layers\.1 keys differs from the never-rejected run"):
        quantised_case(oracles_of(make_runtime()), WIDE, Witness())


def test_packed_rows_that_stay(oracles_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trim that cuts no packed row is named by the component."""
    seeded()["quantised-trim-is-a-stub"].apply(monkeypatch)
    with pytest.raises(StateDiffers) as caught:
        quantised_case(oracles_of(make_runtime()), WIDE, Witness())
    assert (caught.value.layer, caught.value.component) in {
        ("layers.1", "offset"),
        ("layers.1", "keys"),
    }
