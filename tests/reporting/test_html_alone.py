"""HTML: the page needs nothing from anywhere."""

import re
from html.parser import HTMLParser

from mtp_conformance.report import Report
from mtp_conformance.reporting import html


class _References(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data", "poster"):
                self.found.append(value or "")


def test_the_page_refers_to_itself_only(report: Report) -> None:
    """Every reference is an anchor of the page, or data in it."""
    page = html.render(report)
    references = _References()
    references.feed(page)
    assert references.found
    assert all(found.startswith(("#", "data:,")) for found in references.found)
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest", page)


def test_the_page_forbids_itself_to_load(report: Report) -> None:
    """Its policy starts with nothing allowed."""
    assert "Content-Security-Policy\" content=\"default-src 'none'" in html.render(report)


def test_every_anchor_leads_somewhere(report: Report) -> None:
    """A square of a matrix leads to a failure that is on the page."""
    page = html.render(report)
    anchors = set(re.findall(r'href="#(\w+)"', page))
    assert anchors
    assert anchors <= set(re.findall(r'id="(\w+)"', page))
