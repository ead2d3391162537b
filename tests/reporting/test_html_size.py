"""HTML: a page stays small enough for a phone."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mtp_conformance.report import Failure, Report, Result
from mtp_conformance.reporting import html
from mtp_conformance.verdict import Verdict

LIMIT = 1_500_000


@pytest.mark.parametrize("message", ["short", '"' * 20_000], ids=["short", "long"])
def test_a_run_in_which_everything_fails_is_cut_and_says_so(
    make_report: Callable[..., Report], failure: Failure, message: str
) -> None:
    """Of 3500 failures the page spells out what fits, and counts the others."""
    worst = replace(failure, message=message, stderr=message)
    cells = [{"model": f"m{n % 12}", "k": n % 9, "n": n} for n in range(3500)]
    results = [
        Result("stream.greedy.own-drafts", cell, Verdict.FAIL, 0.1, {}, worst) for cell in cells
    ]
    page = html.render(make_report(*results))
    shown = page.count('class="one"')
    assert shown > 10
    assert f"<p>{3500 - shown} more did not pass" in page
    assert len(page.encode()) < LIMIT


def test_passes_are_counted_not_listed(make_report: Callable[..., Report]) -> None:
    """A run in which 3500 results pass has a short page."""
    cells = [{"model": f"m{n % 12}", "k": n % 9, "n": n} for n in range(3500)]
    results = [Result("stream.greedy.own-drafts", cell, Verdict.PASS, 0.1) for cell in cells]
    page = html.render(make_report(*results))
    assert "What did not pass" not in page
    assert len(page) < 100_000
