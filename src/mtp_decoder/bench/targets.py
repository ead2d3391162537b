"""What the figures are held to: ratios within one run, so that the computer matters little.

A target is neither met nor missed if its figure is withheld, or if the bound lies inside the middle
half of the runs: another run might say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtp_decoder.bench.plan import DISK, MLX_LM
from mtp_decoder.bench.rows import Run
from mtp_decoder.bench.summary import (
    Cell,
    Figure,
    figure,
    of,
    ours,
    plain_of,
    reach,
    reach_of_verify,
    rewind_share,
    speed_beside,
)
from mtp_decoder.rewind import Rewind

WIDE = "hidden-1024"
"""The random model of hidden size 1024 and 12 layers, with 128 x 128 heads."""
TRAINED = ("qwen3_5-bytes", "flash-next-bytes")
"""The models of a million parameters in `reference_models/trained`."""
PLAIN_SPEED = 0.98
REWIND_SHARE = 0.03
BYTES = 100.0
REACH = 0.9
DEPTH, WORKLOAD = 3, "code"


@dataclass(frozen=True)
class Target:
    """One figure, and the bound it is held to; None where it stands beside one that is."""

    what: str
    where: str
    figure: Figure
    bound: float | None
    at_least: bool = True
    percent: bool = True

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `too close to call`, `withheld`; nothing where there is no bound."""
        if self.figure.withheld:
            return "withheld"
        if self.bound is None:
            return ""
        ends = {self._holds(value) for value in self.figure.quartiles}
        if len(ends) > 1:
            return "too close to call"
        return "met" if ends.pop() else "missed"

    def _holds(self, value: float) -> bool:
        assert self.bound is not None
        return value >= self.bound if self.at_least else value <= self.bound


def targets_of(cells: Sequence[Cell]) -> list[Target]:
    """Every target there are rows for."""
    return [
        *_plain_speed(cells),
        *_rewinds(cells),
        *_bytes(cells),
        *_reaches(cells),
        *_passes(cells),
    ]


def _plain_speed(cells: Sequence[Cell]) -> list[Target]:
    """K=0 beside mlx-lm's own loop."""
    found: list[Target] = []
    for theirs in cells:
        if theirs.arm.runtime != MLX_LM:
            continue
        for cell in ours(cells):
            place = (cell.block, cell.workload, cell.arm.k)
            if place == (theirs.block, theirs.workload, 0):
                shown = speed_beside(cell, theirs)
                where = f"{cell.model}, {cell.workload}"
                what = "K=0, speed beside mlx-lm's `generate_step`"
                found.append(Target(what, where, shown, PLAIN_SPEED))
    return found


def _of_wide(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in ours(cells) if cell.model == WIDE and cell.arm.k]


def _rewinds(cells: Sequence[Cell]) -> list[Target]:
    """Time of a rewind beside the verify pass's, the strategies beside each other."""
    return [
        Target(
            f"rewind by {cell.arm.strategy}, time of the verify pass",
            f"{cell.model}, K={cell.arm.k}, {cell.workload}",
            rewind_share(cell),
            REWIND_SHARE if cell.arm.strategy == Rewind.TAPE.value else None,
            at_least=False,
        )
        for cell in _of_wide(cells)
    ]


def _passes(cells: Sequence[Cell]) -> list[Target]:
    """The share of a round that its passes take, which is the share of the limit it can reach."""
    return [
        Target(
            "draft and verify passes, time of a round: what is reached of any limit",
            f"{cell.model}, K={cell.arm.k}, {cell.arm.strategy}",
            of(cell, _of_passes),
            None,
        )
        for cell in _of_wide(cells)
    ]


def _of_passes(run: Run) -> float:
    return (run.seconds["draft"] + run.seconds["verify"]) / run.decode_seconds


def _bytes(cells: Sequence[Cell]) -> list[Target]:
    """What snapshots of every position remember, in tapes."""
    found: list[Target] = []
    for cell in _of_wide(cells):
        if cell.arm.strategy != Rewind.SNAPSHOT.value:
            continue
        for tape in _of_wide(cells):
            same = (tape.block, tape.workload, tape.arm.k)
            if tape.arm.strategy == Rewind.TAPE.value and same == (
                cell.block,
                cell.workload,
                cell.arm.k,
            ):
                shown = _in_tapes(cell, tape)
                where = f"{cell.model}, K={cell.arm.k}, {cell.workload}"
                what = "bytes of snapshots, in tapes"
                found.append(Target(what, where, shown, BYTES, percent=False))
    return found


def _in_tapes(snapshots: Cell, tape: Cell) -> Figure:
    for cell in (snapshots, tape):
        if cell.withheld:
            return Figure((), cell.withheld)
    most = max(run.bytes["remembered"] for run in snapshots.runs)
    return figure([most / run.bytes["remembered"] for run in tape.runs])


def _reaches(cells: Sequence[Cell]) -> list[Target]:
    """The speed-up at K=3 on code as a share of what it could be."""
    found: list[Target] = []
    for cell in ours(cells):
        plain = plain_of(cell, cells)
        if (cell.arm.k, cell.workload) != (DEPTH, WORKLOAD) or plain is None or cell.model == WIDE:
            continue
        bound = REACH if cell.arm.strategy == Rewind.TAPE.value else None
        on = ", experts on disk" if cell.arm.experts == DISK else ""
        where = f"{cell.model}{on}, {cell.arm.strategy}"
        names: list[tuple[str, Callable[[Cell, Cell], Figure], float | None]] = [
            ("speed-up at K=3 on code, of the limit", reach, bound),
            ("the same, of a limit in which drafts cost nothing", reach_of_verify, None),
        ]
        found += [Target(what, where, share(cell, plain), held) for what, share, held in names]
    return found
