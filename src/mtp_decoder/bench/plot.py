"""The plot for people: speed-up against K, beside what it could be.

One panel a model and workload, one line a strategy; the dashed line is the limit of `limit.py` for
the acceptance and the passes measured with the first strategy. matplotlib draws it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from mtp_decoder.bench.plan import DISK
from mtp_decoder.bench.rows import Rows
from mtp_decoder.bench.summary import Cell, Figure, cells_of, limit, ours, plain_of, speed_up
from mtp_decoder.errors import DecoderError

COLOURS = {"tape": "#1f77b4", "rerun": "#2ca02c", "snapshot": "#9467bd", "replay": "#d62728"}
Place = tuple[str, str, str]
"""Model, where its experts are, workload."""


def panels_of(cells: list[Cell]) -> dict[Place, list[Cell]]:
    """Our cells with drafts by panel; those with two depths or more."""
    panels: dict[Place, list[Cell]] = {}
    for cell in ours(cells):
        if cell.arm.k and plain_of(cell, cells) is not None:
            panels.setdefault((cell.model, cell.arm.experts, cell.workload), []).append(cell)
    return {at: found for at, found in panels.items() if len({c.arm.k for c in found}) > 1}


def points(cells: list[Cell], every: list[Cell], *, of_limit: bool = False) -> dict[int, Figure]:
    """Speed-ups, or limits, by K; what is withheld is no point."""
    found: dict[int, Figure] = {}
    for cell in cells:
        plain = plain_of(cell, every)
        assert plain is not None
        figure = limit(cell, plain) if of_limit else speed_up(cell, plain)
        if not figure.withheld:
            found[cell.arm.k] = figure
    return dict(sorted(found.items()))


def draw(rows: Rows, file: Path) -> None:
    """Draw all panels into an SVG file.

    Raises:
        DecoderError: matplotlib is not installed.
    """
    try:
        matplotlib: Any = import_module("matplotlib")
    except ImportError as error:
        what = "a plot needs matplotlib: pip install 'mtp-conformance[train]'"
        raise DecoderError(what) from error
    cells = cells_of(rows)
    panels = panels_of(cells)
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = file.name  # the same drawing, the same file
    pyplot: Any = import_module("matplotlib.pyplot")
    width = min(2, len(panels))
    height = -(-len(panels) // width)
    figure, grid = pyplot.subplots(
        height, width, figsize=(5.2 * width, 3.4 * height), squeeze=False, layout="constrained"
    )
    axes = list(grid.flat)
    for (at, found), one in zip(panels.items(), axes, strict=False):
        _panel(one, at, found, cells)
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _panel(axes: Any, at: Place, cells: list[Cell], every: list[Cell]) -> None:
    strategies = list(dict.fromkeys(cell.arm.strategy for cell in cells))
    for strategy in strategies:
        of_it = [cell for cell in cells if cell.arm.strategy == strategy]
        colour = COLOURS[strategy]
        found = points(of_it, every)
        _line(axes, found, label=strategy, color=colour, marker="o", linewidth=1.4, markersize=4)
        for k, figure in found.items():
            axes.vlines(k, min(figure.values), max(figure.values), color=colour, alpha=0.4)
        if strategy == strategies[0]:
            bound = points(of_it, every, of_limit=True)
            dashes = {"color": "black", "linestyle": "--", "linewidth": 1}
            _line(axes, bound, label=f"limit ({strategy})", **dashes)
    model, experts, workload = at
    title = f"{model}, {workload}" + (", experts on disk" if experts == DISK else "")
    axes.set(title=title, xlabel="K, drafts a round", ylabel="speed, K=0 is 1")
    axes.axhline(1, color="grey", linewidth=0.6)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _line(axes: Any, found: dict[int, Figure], **style: Any) -> None:
    axes.plot(list(found), [figure.median for figure in found.values()], **style)
