"""The page of clauses is what stands in the suite."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_clauses_page_is_current() -> None:
    """`docs/clauses.md` is what `docs/clauses.py` writes today."""
    page = runpy.run_path(str(DOCS / "clauses.py"))["page"]
    assert (DOCS / "clauses.md").read_text() == page()
