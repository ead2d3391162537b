"""Comparing trajectories: how far apart, how far they may be, and what may not differ at all.

A distance is the largest difference of a quantity in units of its largest magnitude, or of one.
It may be as large as `BOUND`, or as `SLACK` times what moving every weight by one rounding does
to that quantity (its sensitivity, measured in float64), whichever is larger: a norm of something
tiny makes more of a rounding than 1e-5, and says so in advance. Integers, selections and the
likeliest token have no tolerance; where two candidates tie they are named, not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.oracle.trajectory import Array, Trajectory

BOUND = 1e-5
SLACK = 8.0
SAME = 1e-9
"""How far float64 runs of the same formulas on other machines may be, in relative terms."""

TIE = 1e-4
"""Closer than this, two scores at a cut or two largest logits are a tie."""


class ComparisonError(ValueError):
    """Two trajectories that cannot be compared; the message says which quantity and why."""


@dataclass(frozen=True)
class Distance:
    """How far one quantity is from the oracle's, and how far it may be."""

    name: str
    found: float
    bound: float

    @property
    def within(self) -> bool:
        """Whether it is near enough; NaN is not."""
        return self.found <= self.bound

    def __str__(self) -> str:
        return f"{self.name} is {self.found:.1e} from the oracle, at most {self.bound:.1e} is due"


def distances(
    found: Trajectory,
    due: Trajectory,
    sensitivity: Mapping[str, float],
    *,
    lacking: tuple[str, ...] = (),
) -> list[Distance]:
    """The distance of every quantity.

    Args:
        found: what is judged, in any float type.
        due: the oracle's.
        sensitivity: of every quantity, as `sensitivities` measures it.
        lacking: endings of names that `found` need not have.

    Raises:
        ComparisonError: a quantity is missing, unknown or of another shape, or there is none.
    """
    missing = [name for name in due if name not in found and not name.endswith(lacking or ("\n",))]
    unknown = [name for name in found if name not in due]
    if missing or unknown or not found:
        raise ComparisonError(f"quantities missing: {missing}; unknown: {unknown}")
    return [
        Distance(name, distance(name, array, due[name]), bound(due[name], sensitivity[name]))
        for name, array in found.items()
    ]


def distance(name: str, found: Array, due: Array) -> float:
    """The largest difference, in units of the largest magnitude due or of one.

    Raises:
        ComparisonError: the shapes differ.
    """
    if found.shape != due.shape:
        raise ComparisonError(f"{name} has the shape {found.shape}, due {due.shape}")
    wide, expected = found.astype(np.float64), due.astype(np.float64)
    return float(np.abs(wide - expected).max() / max(1.0, np.abs(expected).max()))


def bound(due: Array, sensitivity: float) -> float:
    """How far a quantity may be; integers and selections not at all."""
    if not np.issubdtype(due.dtype, np.floating):
        return 0.0
    return max(BOUND, SLACK * sensitivity)


def tied_rows(logits: Array) -> list[int]:
    """Rows whose two largest logits are closer than `TIE`, in units of the largest magnitude."""
    ordered = np.sort(logits, axis=-1)
    scale = max(1.0, float(np.abs(logits).max()))
    return np.flatnonzero((ordered[:, -1] - ordered[:, -2]) / scale < TIE).tolist()


def other_choices(logits: Array, due: Array, tied: Sequence[int]) -> list[int]:
    """Rows whose likeliest token differs, other than those known to be tied."""
    differs = logits.argmax(-1) != due.argmax(-1)
    return [row for row in np.flatnonzero(differs).tolist() if row not in tied]


def cut_gaps(trajectory: Trajectory, keep: int) -> dict[str, float]:
    """Smallest distance at the selection cut of every indexed layer: 0 is an exact tie.

    Args:
        trajectory: with `*.scores`.
        keep: how many blocks a query selects.
    """
    found: dict[str, float] = {}
    for name, scores in trajectory.items():
        if name.endswith(".scores"):
            cut = [row[row >= 0] for row in scores if (row >= 0).sum() > keep]
            ordered = [np.sort(row)[::-1] for row in cut]
            gaps = [float(row[keep - 1] - row[keep]) for row in ordered]
            found[name.removesuffix(".scores")] = min(gaps, default=float("inf"))
    return found
