"""Every seeded fault can be seeded: what it edits is there."""

from typing import Any

import pytest

from tests.faults.registry import seeded


class Counting:
    """pytest's own, with a count of what was put in another's place."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.edits = 0

    def __getattr__(self, name: str) -> Any:
        self.edits += name.startswith("set")
        return getattr(self._patch, name)


@pytest.mark.parametrize("id", seeded())
def test_applies(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    """The decoder has the lines that a fault edits, and the fault edits something."""
    patch: Any = Counting(monkeypatch)
    seeded()[id].apply(patch)
    assert patch.edits
