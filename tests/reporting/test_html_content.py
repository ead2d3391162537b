"""HTML: what a reader finds on the page."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import Report, Result
from mtp_conformance.reporting import html
from mtp_conformance.reporting.severity import LETTERS
from mtp_conformance.verdict import Verdict


@pytest.mark.parametrize(
    "words",
    [
        "<b>1 of 8</b> results pass; 7 required do not. 1 case ran in 1.5 s.",
        "A rejected draft leaves no trace.",
        "clause rewind-1",
        "round 2, layer layers.1, component recurrent",
        "<dt>first at</dt><dd>(0, 1)</dd>",
        "0x3f80000<mark>1</mark>",
        "<dt>distance</dt><dd>1 ULP</dd>",
        "<dt>top-2 margin</dt><dd>0.015625</dd>",
        "K=1 same",
        "K=2 differs at token 17",
        "prompt length 3, K=2; rounds: 2 drafted, 1 accepted; 2 drafted, 0 accepted",
        "the end of stderr",
        "python -m pytest &#39;conformance/test_x.py::test_y[gdn-k2]&#39; -n 0",
        "the reason of unsupported",
        "cpu: test",
    ],
)
def test_a_failure_is_spelled_out(report: Report, words: str) -> None:
    """Place, both patterns, distance, ladder, smallest run and command are on the page."""
    assert words in html.render(report)


def test_a_letter_says_what_a_colour_says(report: Report) -> None:
    """Every verdict has a letter of its own, and the page shows each beside its colour."""
    page = html.render(report)
    assert len(set(LETTERS.values())) == len(Verdict)
    for verdict, letter in LETTERS.items():
        assert f'<span class="v {verdict}" title="{verdict}"><b>{letter}</b>' in page


def test_a_square_takes_the_worst_verdict(make_report: Callable[..., Report]) -> None:
    """A pass beside an unsupported result does not hide it, and both are counted."""
    verdicts = (Verdict.PASS, Verdict.UNSUPPORTED)
    cells = [({"model": "gdn", "k": 1, "n": n}, v) for n, v in enumerate(verdicts)]
    results = [Result("stream.greedy.own-drafts", params, v, 0.1) for params, v in cells]
    square = '<td class="unsupported" data-v="unsupported pass" title="1 unsupported, 1 pass">'
    assert f"{square}<b>U</b> 1/2</td>" in html.render(make_report(*results))


def test_a_probe_is_a_table(make_report: Callable[..., Report], results: list[Result]) -> None:
    """Operations are rows, widths columns, and plain values stand below."""
    probe = {"operations": {"matmul": {"2": True, "10": False}}, "fingerprint": "ab12"}
    page = html.render(make_report(*results, probe=probe))
    assert '<th class="sign">2</th><th class="sign">10</th>' in page
    assert '<td>matmul</td><td class="sign">=</td><td class="sign">≠</td>' in page
    assert "<dt>fingerprint</dt><dd>ab12</dd>" in page


def test_a_page_without_probe_has_no_probe(report: Report) -> None:
    """A report without a probe makes a page without that part."""
    assert "<h2>Probe</h2>" not in html.render(report)
