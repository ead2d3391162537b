"""Figures as text. A withheld one is a dash, here and everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtp_decoder.bench.summary import Figure

WITHHELD = "–"


def shown(figure: Figure, form: Callable[[float], str]) -> str:
    """The median, and the least and the largest value where they read otherwise."""
    if figure.withheld:
        return WITHHELD
    middle, low, high = map(form, (figure.median, min(figure.values), max(figure.values)))
    return middle if low == middle == high else f"{middle} ({low}–{high})"


def times(value: float) -> str:
    """A factor."""
    return f"{value:.2f}"


def whole(value: float) -> str:
    """A number without a fraction."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """A share."""
    return f"{value:.1%}"


def milliseconds(value: float) -> str:
    """Seconds, as milliseconds."""
    return f"{value * 1e3:.2f}"


def size(count: float) -> str:
    """Bytes in a unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.2f} GiB"


def columns(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in columns of spaces, numbers to the right."""
    every = [head, *lines]
    widths = [max(len(line[i]) for line in every) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if i < 3 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in every
    )


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = "|---" * len(head) + "|"
    first, *rest = (f"| {' | '.join(line)} |" for line in (head, *lines))
    return "\n".join((first, rule, *rest))
