"""Pages: written whole, beside a complete report only."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.report import Report
from mtp_conformance.reporting import badge
from mtp_conformance.reporting.pages import PAGES, write_all

CASE = """
@a_case("a.b.c")
def test_it(witness):
    '''It holds.'''
    witness.add(compared=1)
    {body}
"""


def test_a_run_leaves_its_pages(
    run_cases: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    """A complete run writes every page beside its report and names them in the summary."""
    run = run_cases(CASE.format(body="assert False"))
    left = {path.name for path in (pytester.path / "out").iterdir()}
    assert left == {"report.jsonl", *PAGES}
    run.stdout.fnmatch_lines([f"report: out/report.jsonl (beside it: {', '.join(PAGES)})"])


def test_an_early_end_leaves_no_pages_of_an_earlier_run(
    run_cases: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    """The pages of the run before are gone, and no new ones are there."""
    run_cases(CASE.format(body="pass"))
    run_cases(CASE.format(body="pytest.exit('enough')"))
    assert [path.name for path in (pytester.path / "out").iterdir()] == ["report.partial.jsonl"]


def test_pages_go_where_they_are_told(report: Report, tmp_path: Path) -> None:
    """A folder that is not there is made, and nothing but the pages is left in it."""
    folder = tmp_path / "new" / "pages"
    assert write_all(report, folder) == [folder / name for name in PAGES]
    assert {path.name for path in folder.iterdir()} == set(PAGES)


def test_a_page_that_cannot_be_made_leaves_the_old_ones(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written unless every page was made."""

    def fail(report: Report) -> str:
        raise RuntimeError

    monkeypatch.setattr(badge, "render", fail)
    with pytest.raises(RuntimeError):
        write_all(report, tmp_path / "pages")
    assert not (tmp_path / "pages").exists()
