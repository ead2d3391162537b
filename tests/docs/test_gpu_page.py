"""The page on accelerators is what its raw rows say."""

import json
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_gpu_page_is_current() -> None:
    """`docs/gpu.md` is what `docs/gpu.py` makes of `docs/results/gpu`."""
    made = runpy.run_path(str(DOCS / "gpu.py"))
    files = sorted((DOCS / "results" / "gpu").glob("*.jsonl"))
    assert files
    assert (DOCS / "gpu.md").read_text() == made["page"](files)


def test_a_broken_claim_stands_on_the_page(tmp_path: Path) -> None:
    """A cell whose bits were not there is shown as what it is."""
    made = runpy.run_path(str(DOCS / "gpu.py"))
    rows = (DOCS / "results" / "gpu" / "h200-zoo.jsonl").read_text().splitlines()
    stream = next(n for n, row in enumerate(rows) if '"part": "stream"' in row)
    broken = rows[stream].replace('"ok": true', '"ok": false')
    rows[stream] = broken.replace('"differing": ""', '"differing": "layers.1.conv"')
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(rows))
    page = made["page"]([file])
    assert "K=1: layers.1.conv" in page
    assert "- Row-exact: 319 of 320 cells" in page


def test_what_was_not_run_stands_on_the_page(tmp_path: Path) -> None:
    """A depth that a run was ended before, or one left out, is said to be missing."""
    made = runpy.run_path(str(DOCS / "gpu.py"))
    rows = (DOCS / "results" / "gpu" / "h200-zoo.jsonl").read_text().splitlines()
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(r for r in rows if not _is_of(r, "stream", "ple", "float32", 3)))
    page = made["page"]([file])
    assert "- Row-exact: 319 of 319 cells" in page
    assert "; 1 more were not run." in page
    assert "| all of K=1, 2, 4, 5, 6, 7, 8; K=3 not run |" in page


def _is_of(row: str, part: str, model: str, dtype: str, k: int) -> bool:
    found = json.loads(row)
    fields = [found.get(name) for name in ("part", "model", "dtype", "k")]
    return fields == [part, model, dtype, k]


def test_rows_without_a_header_are_refused(tmp_path: Path) -> None:
    """A file that does not say where it was made says nothing."""
    made = runpy.run_path(str(DOCS / "gpu.py"))
    file = tmp_path / "rows.jsonl"
    file.write_text('{"part": "stream"}\n')
    with pytest.raises(ValueError, match="no header"):
        made["page"]([file])
