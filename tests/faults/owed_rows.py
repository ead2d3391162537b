"""Path-gap: rows of the head that one round leaves to the first draft of the next."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable

import pytest

from mtp_decoder.drafting import Drafter
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import HEAD, Claim, Family, Fault, Shot, shot

BUDGETS = shot("emit.budget.every-index", "attn", k=4)


def _forgotten(patch: pytest.MonkeyPatch) -> None:
    """A round drafts without the row that the round before left to it."""
    edit(
        patch,
        Drafter.draft,
        ("(owed := self._owed) is not None", "(owed := None) is not None"),
        ("        self._make_owed()\n", ""),
    )


def _of_the_next_pair(patch: pytest.MonkeyPatch) -> None:
    """The row that was left is made of the hidden that the round's own first draft is made of."""
    again = "mx.repeat(hidden, owed.tokens.shape[1], axis=1)"
    edit(patch, Drafter.draft, ("[owed.hidden, hidden]", f"[{again}, hidden]"))


def _left_by_a_stop(patch: pytest.MonkeyPatch) -> None:
    """A stream that stops behind a full accept leaves the row to a round that never comes."""
    edit(patch, Session.land, ("drafter is None or", "True or"))


def _dropped_by_a_cancel(patch: pytest.MonkeyPatch) -> None:
    """A round that took over the row left to it fails, and its cancel drops it."""
    edit(
        patch,
        Drafter.go_back,
        (
            "length, self.hidden, self._owed = place",
            "length, self.hidden, self._owed = place.length, place.hidden, None",
        ),
    )


def _fault(
    name: str, ids: tuple[str, ...], apply: Callable[[pytest.MonkeyPatch], None], *shots: Shot
) -> Fault:
    return Fault(
        id=name,
        family=Family.PATH_GAP,
        kind="H",
        ids=ids,
        invariant="I5",
        claim=Claim.HEAD,
        shots=shots,
        apply=apply,
        breaks=HEAD,
    )


FAULTS = (
    _fault("owed-row-is-forgotten", ("H3", "K2"), _forgotten, BUDGETS),
    _fault("owed-row-of-the-next-pair", ("H3",), _of_the_next_pair, BUDGETS),
    _fault(
        "stop-leaves-a-row-owed",
        ("H3", "H11"),
        _left_by_a_stop,
        shot("emit.stop.every-index", "attn", k=3),
    ),
    _fault(
        "cancel-drops-an-owed-row",
        ("H3", "L2"),
        _dropped_by_a_cancel,
        shot("lifecycle.exceptions.in-a-stream", "window", k=2),
    ),
)
