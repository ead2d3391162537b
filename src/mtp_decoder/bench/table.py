"""What a run found, for the terminal."""

from __future__ import annotations

from mtp_decoder.bench.rows import Rows
from mtp_decoder.bench.showing import columns, percent, shown, times, whole
from mtp_decoder.bench.summary import (
    Cell,
    Figure,
    acceptance,
    cells_of,
    limit,
    plain_of,
    rewind_share,
    speed,
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
    return f"{target.what} ({target.where}): {figure}{bound}"


def _sign(target: Target) -> str:
    return "≥" if target.at_least else "≤"


def _bound(target: Target) -> str:
    assert target.bound is not None
    return f"{target.bound:.0%}" if target.percent else f"{target.bound:.0f}"


def withheld(cells: list[Cell]) -> list[str]:
    """One line a figure that is not shown, with the reason."""
    found: list[str] = []
    for cell in cells:
        plain = plain_of(cell, cells)
        figures: list[tuple[str, Figure]] = [("tokens/s", speed(cell))]
        if plain is not None and plain is not cell:
            figures.append(("speed-up", speed_up(cell, plain)))
        reasons = {figure.withheld: what for what, figure in reversed(figures) if figure.withheld}
        where = ", ".join(part for part in (cell.block, str(cell.arm), cell.workload) if part)
        found += [f"withheld: {where}: {what}: {reason}" for reason, what in reasons.items()]
    return found


bound_of, sign_of = _bound, _sign
