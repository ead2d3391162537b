"""From raw rows to figures: medians with their spread, and what must not be shown.

A **cell** is an arm on one workload of one block. Its figures are withheld, and the reason shown in
their place, if a process failed, if fewer than two runs count, if the arm was not engaged (see
`engaged`), or if the middle half of its runs spreads over more than `WIDEST`.

A ratio of two cells is taken turn by turn, of runs in processes that came one after the other, and
is withheld by its own spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from mtp_decoder.bench.limit import speed_up_limit, tokens_a_round
from mtp_decoder.bench.plan import DISK, OURS, Arm
from mtp_decoder.bench.rows import Failure, Rows, Run

WIDEST = 0.1
"""Widest spread, as a share of the median, at which a figure is shown."""
WIDEST_OF_A_PHASE = 0.5
"""The same of a time by phase, which is small and varies more."""


@dataclass(frozen=True)
class Figure:
    """Values of several runs; `withheld` says why they are not to be shown, if so."""

    values: tuple[float, ...] = ()
    withheld: str = ""

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Where the middle half begins and ends, between runs in proportion."""
        low, _, high = quantiles(self.values, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Width of the middle half, as a share of the median."""
        low, high = self.quartiles
        return (high - low) / abs(self.median) if self.median else 0.0


@dataclass(frozen=True)
class Cell:
    """Runs of an arm on one workload of a block, in turn; `withheld` as in `Figure`."""

    block: str
    model: str
    arm: Arm
    workload: str
    runs: tuple[Run, ...]
    withheld: str = ""


def engaged(run: Run) -> str:
    """Why a run did not do what its arm is for; empty if it did.

    An arm with drafts has to draft and to have drafts rejected, or its rewind was never at work;
    one without must not draft. Experts on disk have to be read.
    """
    drafted = sum(run.drafted_by_depth)
    if run.k == 0:
        return "drafted without being asked to" if drafted else ""
    if not drafted:
        return "never drafted"
    if len(run.drafted_by_depth) != run.k:
        return f"drafted {len(run.drafted_by_depth)} deep"
    if not run.rejected:
        return "no draft was ever rejected"
    return ""


def _engaged_experts(run: Run) -> str:
    if run.experts == DISK and not run.experts_read.get("reads"):
        return "read no expert from disk"
    return ""


def figure(values: Sequence[float], widest: float = WIDEST) -> Figure:
    """A figure of several values, withheld if there are too few or they lie far apart."""
    if len(values) < 2:
        return Figure(tuple(values), f"{len(values)} runs are too few")
    made = Figure(tuple(values))
    if made.spread > widest:
        return Figure(made.values, f"the middle half of its runs spreads over {made.spread:.0%}")
    return made


def cells_of(rows: Rows) -> list[Cell]:
    """All cells, in the order in which they were first run."""
    places: dict[tuple[str, Arm, str], list[Run]] = {}
    for run in rows.runs:
        if not run.warm_up:
            places.setdefault((run.block, run.way, run.workload), []).append(run)
    failed = _failed(rows.failures)
    found = [
        Cell(block, runs[0].model, arm, workload, tuple(runs), _why(runs, failed.get((block, arm))))
        for (block, arm, workload), runs in places.items()
    ]
    known = {(cell.block, cell.arm) for cell in found}
    for failure in rows.failures:
        if (failure.block, failure.way) not in known:
            known.add((failure.block, failure.way))
            why = failed[failure.block, failure.way]
            found.append(Cell(failure.block, failure.model, failure.way, "", (), why))
    return found


def _failed(failures: Sequence[Failure]) -> dict[tuple[str, Arm], str]:
    return {(f.block, f.way): f"a process failed: {f.error}" for f in failures}


def _why(runs: Sequence[Run], failed: str | None) -> str:
    """Why nothing of a cell is to be shown."""
    if failed:
        return failed
    reasons = [reason for run in runs if (reason := engaged(run) or _engaged_experts(run))]
    if reasons:
        return reasons[0]
    return "" if len(runs) >= 2 else f"{len(runs)} runs are too few"


def of(cell: Cell, value: Callable[[Run], float], widest: float = WIDEST) -> Figure:
    """A figure of one cell."""
    if cell.withheld:
        return Figure((), cell.withheld)
    return figure([value(run) for run in cell.runs], widest)


def ratio(
    cell: Cell, other: Cell, value: Callable[[Run, Run], float], widest: float = WIDEST
) -> Figure:
    """A figure of two cells of a block, turn by turn."""
    for one in (cell, other):
        if one.withheld:
            return Figure((), one.withheld)
    turns = {(run.turn, run.repeat): run for run in other.runs}
    pairs = [
        (run, turns[run.turn, run.repeat]) for run in cell.runs if (run.turn, run.repeat) in turns
    ]
    return figure([value(run, beside) for run, beside in pairs], widest)


def speed(cell: Cell) -> Figure:
    """Tokens a second."""
    return of(cell, lambda run: run.speed)


def speed_up(cell: Cell, plain: Cell) -> Figure:
    """How many times as fast as the same decoder without drafts."""
    return ratio(cell, plain, lambda run, beside: run.speed / beside.speed)


def limit(cell: Cell, plain: Cell) -> Figure:
    """What the speed-up could be, by `limit.py`, for measured acceptance and passes."""
    return ratio(cell, plain, lambda run, beside: _limit(run, beside, "draft", "verify"))


def reach(cell: Cell, plain: Cell) -> Figure:
    """The speed-up as a share of the limit."""
    return ratio(cell, plain, lambda run, beside: _reach(run, beside, "draft", "verify"))


def reach_of_verify(cell: Cell, plain: Cell) -> Figure:
    """The same, as if drafts cost nothing: the limit of acceptance and verify cost alone."""
    return ratio(cell, plain, lambda run, beside: _reach(run, beside, "verify"))


def _limit(run: Run, beside: Run, *passes: str) -> float:
    tokens = tokens_a_round(run.drafted_by_depth, run.accepted_by_depth)
    spent = sum(run.seconds[phase] for phase in passes) / run.rounds
    return speed_up_limit(tokens, spent, 1 / beside.speed)


def _reach(run: Run, beside: Run, *passes: str) -> float:
    return run.speed / beside.speed / _limit(run, beside, *passes)


def rewind_share(cell: Cell) -> Figure:
    """Time of the rewinds, as a share of the time of the verify passes."""

    def share(run: Run) -> float:
        return run.seconds["rewind"] / run.seconds["verify"]

    return of(cell, share, WIDEST_OF_A_PHASE)


def plain_of(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The same runtime's cell without drafts, in the same block and on the same workload."""
    for other in cells:
        same = (other.block, other.workload) == (cell.block, cell.workload)
        if same and other.arm.k == 0 and _kind(other.arm) == _kind(cell.arm):
            return other
    return None


def _kind(arm: Arm) -> tuple[str, str]:
    return arm.runtime, arm.experts


def acceptance(cell: Cell) -> list[float]:
    """Shares of the rounds that drafted 1, 2, ... tokens and accepted that many."""
    drafted = [sum(column) for column in zip(*(r.drafted_by_depth for r in cell.runs), strict=True)]
    stood = [sum(column) for column in zip(*(r.accepted_by_depth for r in cell.runs), strict=True)]
    return [a / d for a, d in zip(stood, drafted, strict=True)]


def ours(cells: Sequence[Cell]) -> list[Cell]:
    """This decoder's."""
    return [cell for cell in cells if cell.arm.runtime == OURS]


def beside(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Every cell of another runtime, with ours of the same K in the same block."""
    return [
        (cell, mine)
        for cell in cells
        for mine in ours(cells)
        if cell.arm.runtime != OURS and _where(cell) == _where(mine)
    ]


def _where(cell: Cell) -> tuple[str, str, int, str]:
    return cell.block, cell.workload, cell.arm.k, cell.arm.experts


def speed_beside(mine: Cell, theirs: Cell) -> Figure:
    """Our speed, in another runtime's."""
    return ratio(mine, theirs, lambda run, other: run.speed / other.speed)
