"""Plain steps that run one ahead: what was under way stays, or is for another place."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mtp_decoder.ahead import Ahead
from mtp_decoder.processing import Processing
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Place, Shot, places, shot

CACHES = places("layers", range(4), "keys", "values", "offset", "conv", "recurrent")
END = shot("emit.stop.without-drafts", "window", k=0)
FAILING = shot("lifecycle.exceptions.in-a-stream", "window", k=0, prompt=3)


def _left(patch: pytest.MonkeyPatch) -> None:
    """The step behind the last token is forgotten, and what it wrote stays."""
    edit(patch, Ahead.undo, ("first.abandon()", "first.nbytes()"))


def _undone_by_one(patch: pytest.MonkeyPatch) -> None:
    """Of two steps that are under way the last alone is undone."""
    edit(patch, Ahead.undo, ("self._windows[0], [], None", "self._windows[-1], [], None"))


def _drawn_a_place_early(patch: pytest.MonkeyPatch) -> None:
    """The token of a step that runs ahead is drawn with the numbers of the place before its own."""
    edit(patch, Ahead.step, ("step.token[None], position + 1", "step.token[None], position"))


def _nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    """Steps run ahead of processors and masks, which never see their rows."""
    teller: Any = vars(Session)["_teller"].fget

    def faulty(self: Any) -> Any:
        processing, self._processing = self._processing, Processing()
        try:
            return teller(self)
        finally:
            self._processing = processing

    patch.setattr(Session, "_teller", property(faulty))


def _fault(
    name: str,
    family: Family,
    kind: str,
    invariant: str,
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
    breaks: frozenset[Place] = frozenset(),
) -> Fault:
    return Fault(
        id=name,
        family=family,
        kind=kind,
        ids=(),
        invariant=invariant,
        claim=Claim.STATE if breaks else Claim.ANY,
        shots=shots,
        apply=apply,
        breaks=breaks,
    )


FAULTS = (
    _fault("step-ahead-stays", Family.PUBLISH_FRONTIER, "L", "I1", _left, END, breaks=CACHES),
    _fault("one-step-of-two-is-undone", Family.SKIP_RESTORE, "L", "I8", _undone_by_one, FAILING),
    _fault(
        "step-ahead-drawn-a-place-early",
        Family.BOUNDARY_SHIFT,
        "S",
        "I10",
        _drawn_a_place_early,
        shot("sample.stream.guessed-drafts", "window", k=4),
    ),
    _fault(
        "steps-run-ahead-of-a-mask",
        Family.PATH_GAP,
        "S",
        "I10",
        _nobody_is_asked,
        shot("sample.mask.guessed-drafts", "window", k=4),
    ),
)
