"""The page on what a tape costs is what the code measures."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_tape_page_is_current() -> None:
    """`docs/tape.md` is what `docs/tape_cost.py` writes today."""
    page = runpy.run_path(str(DOCS / "tape_cost.py"))["page"]
    assert (DOCS / "tape.md").read_text() == page()
