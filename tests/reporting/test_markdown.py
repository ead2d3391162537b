"""Markdown: a comment that fits and that text cannot break."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mtp_conformance.report import Failure, Report, Result
from mtp_conformance.reporting import markdown
from mtp_conformance.verdict import Verdict


@pytest.mark.parametrize(
    "words",
    [
        "### MTP conformance: failures\n\n**1 of 8** results pass; 7 required do not. "
        "Runtime builtin, profile default, 1.5 s.",
        "| unsupported | 1 |",
        "| model | rewind |\n| --- | --- |\n| gdn | **F** 1/8 |",
        "**fail** rewind.recurrent.reject-all&#91;gdn-k2&#93; "
        "(round 2, layer layers.1, component recurrent)",
        "```sh\npython -m pytest 'conformance/test_x.py::test_y[gdn-k2]' -n 0\n```",
        "<details><summary>Environment</summary>",
        "| device | cpu: test |",
    ],
)
def test_a_comment_says_what_happened(report: Report, words: str) -> None:
    """Verdict, counts, models by areas, failures with commands and the environment are there."""
    assert words in markdown.render(report)


def test_the_worst_failure_comes_first(report: Report) -> None:
    """A fail stands before an error, an error before a near-tie."""
    text = markdown.render(report)
    places = [text.index(f"**{verdict}**") for verdict in ("fail", "error", "xpass", "near-tie")]
    assert places == sorted(places)


def test_the_earliest_round_comes_first(
    make_report: Callable[..., Report], failure: Failure
) -> None:
    """Of two fails, the one that went wrong earlier is closer to the cause."""
    results = [
        Result(
            "stream.greedy.own-drafts",
            {"k": k},
            Verdict.FAIL,
            0.1,
            {},
            replace(failure, round=round),
        )
        for k, round in ((1, 3), (2, 1), (3, None))
    ]
    text = markdown.render(make_report(*results))
    places = [text.index(f"&#91;k{k}&#93;") for k in (2, 1, 3)]
    assert places == sorted(places)


def test_a_comment_always_fits(make_report: Callable[..., Report], failure: Failure) -> None:
    """Whatever a runtime writes, the comment is short, and says how much it left out."""
    huge = replace(failure, message="`|<&" * 50_000, command="c" * 50_000, layer="_" * 50_000)
    results = [
        Result("stream.greedy.own-drafts", {"model": "&" * n}, Verdict.FAIL, 0.1, {}, huge)
        for n in range(1, 400)
    ]
    runtime = {f"{n}" * 1000: "&" * 50_000 for n in range(400)} | {"name": "&" * 50_000}
    text = markdown.render(make_report(*results, runtime=runtime, device="|" * 50_000))
    assert len(text) < markdown.LIMIT
    shown = text.count("**fail**")
    assert shown > 1
    assert f"and {399 - shown} more, in report.html" in text
    assert "(cut)" in text


def test_text_cannot_break_out(make_report: Callable[..., Report], failure: Failure) -> None:
    """A message full of backticks stays in its fence, and a name mentions nobody."""
    hostile = replace(failure, message="```\n@everyone <img src=x>\n````")
    cell = {"model": "@me|<b>`*_["}
    result = Result("stream.greedy.own-drafts", cell, Verdict.FAIL, 0.1, {}, hostile)
    text = markdown.render(make_report(result))
    assert "`````text\n```\n@everyone <img src=x>\n````\n`````" in text
    assert "| &#64;me&#124;&#60;b&#62;&#96;&#42;&#95;&#91; |" in text
