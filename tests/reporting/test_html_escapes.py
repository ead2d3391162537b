"""HTML: text of a runtime stays text."""

from collections.abc import Callable
from dataclasses import fields, replace

from mtp_conformance.report import Failure, Report, Result
from mtp_conformance.reporting import html
from mtp_conformance.verdict import Verdict

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x00\x1b[31m\ud800"


def test_hostile_text_is_escaped_wherever_it_stands(
    make_report: Callable[..., Report], failure: Failure
) -> None:
    """No tag gets out of a message, a parameter, a header or a probe; controls are spelled out."""
    texts = {f.name: HOSTILE for f in fields(Failure) if isinstance(getattr(failure, f.name), str)}
    hostile = replace(failure, **texts)
    cell = {"model": HOSTILE, "k": HOSTILE, HOSTILE: HOSTILE}
    page = html.render(
        make_report(
            Result("stream.greedy.own-drafts", cell, Verdict.FAIL, 0.1, {}, hostile, HOSTILE),
            Result("stream.greedy.own-drafts", {}, Verdict.UNSUPPORTED, 0.1, {}, None, HOSTILE),
            runtime={"name": HOSTILE, HOSTILE: [HOSTILE]},
            device=HOSTILE,
            probe={HOSTILE: {HOSTILE: HOSTILE}},
        )
    )
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert not {"\x00", "\x1b"} & set(page)
    assert r"\x1b[31m\ud800" in page
    page.encode()
