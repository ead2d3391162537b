"""What a run found, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from mtp_decoder.bench.rows import Rows
from mtp_decoder.bench.showing import columns, percent, shown, times, whole
from mtp_decoder.bench.summary import (
    Cell,
    Figure,
    acceptance,
    beside,
    cells_of,
    limit,
    plain_of,
    reach,
    rewind_share,
    speed,
    speed_beside,
    speed_up,
)
from mtp_decoder.bench.targets import Target, targets_of

HEAD = ("block", "arm", "workload", "tokens/s", "speed-up", "limit", "accepted", "rewind/verify")


def table(rows: Rows) -> str:
    """All cells, the targets there are rows for, and what is withheld."""
    cells = cells_of(rows)
    parts = [columns(HEAD, [_line(cell, cells) for cell in cells])]
    parts += [_target(target) for target in targets_of(cells)]
    parts += withheld(cells)
    if not rows.complete:
        parts.append("these rows are of a run that is not finished")
    return "\n".join(parts)


def _line(cell: Cell, cells: list[Cell]) -> list[str]:
    plain = plain_of(cell, cells)
    line = [cell.block, str(cell.arm), cell.workload, shown(speed(cell), whole)]
    line.append("" if plain is None else shown(speed_up(cell, plain), times))
    timed = cell.arm.k and plain is not None and bool(cell.runs) and bool(cell.runs[0].seconds)
    line.append(shown(limit(cell, plain), times) if timed and plain is not None else "")
    accepted = "" if cell.withheld else " ".join(f"{share:.0%}" for share in acceptance(cell))
    line += [accepted, shown(rewind_share(cell), percent) if timed else ""]
    return line


def _target(target: Target) -> str:
    figure = shown(target.figure, percent if target.percent else times)
    bound = "" if target.bound is None else f" {_sign(target)} {_bound(target)}: {target.verdict}"
    why = f" ({target.figure.withheld})" if target.figure.withheld else ""
    return f"{target.what} ({target.where}): {figure}{bound}{why}"


def _sign(target: Target) -> str:
    return "≥" if target.at_least else "≤"


def _bound(target: Target) -> str:
    assert target.bound is not None
    return f"{target.bound:.0%}" if target.percent else f"{target.bound:.0f}"


def withheld(cells: list[Cell]) -> list[str]:
    """One line a reason why figures of a cell are not shown; a target's stands with the target."""
    found: list[str] = []
    for cell in cells:
        found += not_shown(cell, _figures(cell, cells))
    for theirs, mine in beside(cells):
        if not (theirs.withheld or mine.withheld):
            found += not_shown(mine, [(f"speed beside {theirs.arm}", speed_beside(mine, theirs))])
    return found


def not_shown(cell: Cell, figures: Sequence[tuple[str, Figure]]) -> list[str]:
    """One line a reason, with the names of the figures that are withheld for it."""
    reasons: dict[str, list[str]] = {}
    for what, figure in figures:
        if figure.withheld:
            reasons.setdefault(figure.withheld, []).append(what)
    where = ", ".join(part for part in (cell.block, str(cell.arm), cell.workload) if part)
    return [f"withheld: {where}: {', '.join(names)}: {why}" for why, names in reasons.items()]


def _figures(cell: Cell, cells: list[Cell]) -> list[tuple[str, Figure]]:
    """What is shown of a cell, by name; where nothing is, its speed stands for all of it."""
    plain = plain_of(cell, cells)
    found = [("tokens/s", speed(cell))]
    if cell.withheld or plain is None or plain is cell:
        return found
    found.append(("speed-up", speed_up(cell, plain)))
    if cell.runs[0].seconds:
        figures = (limit(cell, plain), reach(cell, plain), rewind_share(cell))
        found += zip(("limit", "of the limit", "rewind/verify"), figures, strict=True)
    return found


bound_of, sign_of = _bound, _sign
