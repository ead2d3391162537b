"""Plumbing of the cases: the oracles, and an order in which they are shared."""

import pytest

from mtp_conformance import Cell
from mtp_conformance.fixtures import oracles, profile

__all__ = ["oracles", "profile"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the cells of one model, data type and prompt one after the other; controls first."""
    items.sort(key=_group)


def _group(item: pytest.Item) -> tuple[str, ...]:
    cell = getattr(item, "callspec", None)
    cell = cell.params.get("cell") if cell is not None else None
    if not isinstance(cell, Cell):
        return ("",)
    group = (f"{value:>16}" for value in (cell.model, cell.dtype, cell.prompt_length))
    return ("cell", *group, cell.id)
