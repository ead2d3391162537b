"""What a seeded fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mtp_conformance import Cell
from mtp_decoder.rewind.recurrent import RecurrentUndo


@dataclass(frozen=True)
class Fault:
    """One edit to the decoder.

    Attributes:
        id: stable name.
        breaks: (layer, component) pairs that are wrong after a faulty rewind; the first one
            reported must be among them.
        cells: rounds in which the fault shows, one a strategy and model it applies to.
        apply: makes the edit, through a monkeypatch that undoes it.
    """

    id: str
    breaks: frozenset[tuple[str, str]]
    cells: tuple[Cell, ...]
    apply: Callable[[pytest.MonkeyPatch], None]


def one_reject(model: str, strategy: str = "tape", prompt_length: int = 5) -> Cell:
    """A round of three drafts of which one is right."""
    return Cell(model, strategy, 3, 1, "float32", prompt_length)


def leave_slot(patch: pytest.MonkeyPatch, undo: type[RecurrentUndo], slot: str) -> None:
    """Make a strategy leave one slot at the end of the verify window."""
    rewind = undo.rewind

    def faulty(self: RecurrentUndo, keep: int) -> None:
        index = self.layer.slots.index(slot)
        stale = self.cache[index]
        rewind(self, keep)
        self.cache[index] = stale

    patch.setattr(undo, "rewind", faulty)
