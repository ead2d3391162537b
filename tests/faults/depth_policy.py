"""Faults of a policy that chooses K, and of stop strings."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mtp_decoder import generate
from mtp_decoder.policy import RateAware, StreakFallback
from mtp_decoder.policy.rate import _Seconds
from mtp_decoder.stopping import Stops
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, shot


def _policy(case: str, policy: str, **more: str) -> Shot:
    k = None if more else 3
    return shot(case, "attn", "", k, prompt=3, extra=(("policy", policy), *more.items()))


def _table(world: str) -> Shot:
    return _policy("policy.depth.table", "rate", world=world)


def _never_begins(policy: type[Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """What was seen of one request's text is held against the next."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(policy, "begin", lambda self: None)

    return apply


def _never_ends(patch: pytest.MonkeyPatch) -> None:
    """A pause has no end."""
    edit(patch, StreakFallback.observe, ("max(0, self._left - 1)", "self._left"))


def _never_tries(patch: pytest.MonkeyPatch) -> None:
    """Only the best depth is ever measured, so that plain decoding stays the best for good."""
    edit(patch, RateAware.depth, ("if oldest != best and", "if False and oldest != best and"))


def _one_threshold(patch: pytest.MonkeyPatch) -> None:
    """A part of accepted to attempted drafts that would do for one draft decides for any depth."""
    edit(
        patch,
        RateAware.depth,
        (
            "\n    return best\n",
            "\n    seen = sum(len(place) for place in self._stood)\n"
            "    kept = sum(sum(place) for place in self._stood)\n"
            "    return 0 if seen > 8 and kept < 0.6 * seen else best\n",
        ),
    )


def _rewind_is_free(patch: pytest.MonkeyPatch) -> None:
    """Break-even leaves the rewind out."""
    edit(patch, RateAware._rate, ("(1.0 - all_stand)", "0.0"))


def _rewind_untold(patch: pytest.MonkeyPatch) -> None:
    """The loop does not tell the policy what the rewind cost."""
    edit(patch, generate._cost, ('rewind_seconds=spent["rewind"]', "rewind_seconds=0.0"))


def _first_counts(patch: pytest.MonkeyPatch) -> None:
    """The first call's one-off cost is taken for the usual one."""
    edit(patch, _Seconds.add, ("if self._discard:", "if False:"))


def _characters_alone(patch: pytest.MonkeyPatch) -> None:
    """A stop string inside a block cuts the text there, and lets the block's other tokens stand."""
    edit(patch, Stops.until, ("done + count):", "done + count) and count == new:"))


def _fault(
    id: str,
    family: Family,
    public: str,
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
) -> Fault:
    kind, invariant = (public[0], "I13") if public[0] == "C" else ("T", "I6")
    return Fault(id, family, kind, (public,), invariant, Claim.ANY, shots, apply)


_ANOTHER, _RECOVERS = "policy.accepts.another-request", "policy.accepts.recovers"
FAULTS = (
    _fault(
        "rate-outlives-request",
        Family.LATCH,
        "C7",
        _never_begins(RateAware),
        _policy(_ANOTHER, "rate"),
    ),
    _fault(
        "pause-outlives-request",
        Family.LATCH,
        "C7",
        _never_begins(StreakFallback),
        _policy(_ANOTHER, "streak"),
    ),
    _fault("pause-for-good", Family.LATCH, "C7", _never_ends, _policy(_RECOVERS, "streak")),
    _fault("never-tries-again", Family.LATCH, "C7", _never_tries, _policy(_RECOVERS, "rate")),
    _fault("one-threshold-for-all", Family.CAP, "C8", _one_threshold, _table("memory-bound")),
    _fault("rewind-is-free", Family.COUNTER, "C9", _rewind_is_free, _table("dear-rewind")),
    _fault("rewind-untold", Family.COUNTER, "C9", _rewind_untold, _table("dear-rewind")),
    _fault(
        "first-sample-counts",
        Family.COUNTER,
        "C9",
        _first_counts,
        _policy("policy.cost.first-calls", "rate"),
    ),
    _fault(
        "stop-string-cuts-characters",
        Family.EMIT_RULE,
        "T8",
        _characters_alone,
        shot("emit.stop.text", "gdn", k=4),
    ),
)
