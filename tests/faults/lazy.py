"""Lazy-debt: something is left unevaluated, or kept alive, round after round."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder import session
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.session import Session
from mtp_decoder.state import copy_cache
from mtp_decoder.window import Window
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, shot

DEBT = "memory.laziness.nothing-pending"
FLAT = "memory.rounds.flat"


def _rewind_unevaluated(patch: pytest.MonkeyPatch) -> None:
    """What a rewind puts back is left for the next pass to compute."""
    edit(
        patch,
        Session.rewind,
        ("            self._sync()\n".replace("            ", "        "), ""),
    )


def _without(kind: str, patch: pytest.MonkeyPatch) -> None:
    """One kind of cache is left out of every evaluation."""
    arrays_of = session.arrays_of

    def faulty(caches: Any) -> Any:
        return arrays_of([c for c in caches if type(c).__name__ != kind])

    patch.setattr(session, "arrays_of", faulty)


def _head_unevaluated(patch: pytest.MonkeyPatch) -> None:
    """The head's rows are evaluated by whoever drafts next, if anybody does."""
    edit(
        patch,
        Session._sync,
        ("[*self._caches, *self._head_caches, self._frontier]", "[*self._caches, self._frontier]"),
    )


def _copies_kept(patch: pytest.MonkeyPatch) -> None:
    """The state from before every pass is kept in case of a reject, and never let go."""
    kept: list[Any] = []
    init = RecurrentUndo.__init__

    def faulty(self: Any, layer: Any, cache: Any) -> None:
        init(self, layer, cache)
        kept.append([mx.array(part) for part in self.before if part is not None])

    patch.setattr(RecurrentUndo, "__init__", faulty)


def _windows_kept(patch: pytest.MonkeyPatch) -> None:
    """Undo records outlive their rounds."""
    kept: list[Any] = []
    run = Window.run

    def faulty(self: Any, tokens: Any) -> Any:
        kept.append(self)
        return run(self, tokens)

    patch.setattr(Window, "run", faulty)


def _turns_kept(patch: pytest.MonkeyPatch) -> None:
    """Every turn keeps the caches of the one before it, by reference, and counts none of them."""
    kept: list[Any] = []
    extend = Session.extend

    def faulty(self: Any, tokens: Any) -> Any:
        kept.append([copy_cache(cache) for cache in self._caches])
        return extend(self, tokens)

    patch.setattr(Session, "extend", faulty)


def _fault(
    name: str,
    ids: tuple[str, ...],
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
) -> Fault:
    return Fault(
        id=name,
        family=Family.LAZY_DEBT,
        kind=ids[0][0],
        ids=ids,
        invariant="I12",
        claim=Claim.ANY,
        shots=shots,
        apply=apply,
    )


FAULTS = (
    _fault(
        "rewind-is-not-evaluated",
        ("C1",),
        _rewind_unevaluated,
        shot(DEBT, "window", k=2),
        shot(DEBT, "gdn+mlx-lm", k=2),
    ),
    _fault("head-is-not-evaluated", ("M2",), _head_unevaluated, shot(DEBT, "attn", k=2)),
    _fault(
        "index-is-not-evaluated",
        ("M2", "X7"),
        lambda patch: _without("CacheList", patch),
        shot(DEBT, "qsa", k=2),
    ),
    _fault(
        "copies-are-never-let-go",
        ("M1",),
        _copies_kept,
        shot(FLAT, "window", k=2),
        shot(FLAT, "gdn+mlx-lm", "rerun", k=2),
    ),
    _fault("undo-records-are-never-let-go", ("W4",), _windows_kept, shot(FLAT, "window", k=2)),
    _fault("old-turns-are-never-let-go", ("M6",), _turns_kept, shot("memory.turns.flat", "window")),
)
