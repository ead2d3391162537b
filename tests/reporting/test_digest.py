"""Reports: no edit goes unseen."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtp_conformance.report import Report, ReportError, read_report

Lines = list[str]
EDITED = "the digest is not that of the report: it was edited after the run"


def _verdict(lines: Lines) -> None:
    lines[3] = lines[3].replace('"verdict":"pass"', '"verdict":"fail"')


def _seconds(lines: Lines) -> None:
    lines[3] = lines[3].replace('"seconds":0.5', '"seconds":0.4')


def _duplicate(lines: Lines) -> None:
    lines.insert(4, lines[3])


def _cut(lines: Lines) -> None:
    lines[-1:] = []


def _cut_inside(lines: Lines) -> None:
    lines[-1] = lines[-1][:40]


def _swap(lines: Lines) -> None:
    lines[3], lines[4] = lines[4], lines[3]


def _footer_seconds(lines: Lines) -> None:
    lines[-1] = lines[-1].replace('"seconds":1.5', '"seconds":0.1')


def _no_digest(lines: Lines) -> None:
    lines[-1] = lines[-1].partition(',"sha256"')[0] + "}\n"


def _blank_end(lines: Lines) -> None:
    lines[-1] = lines[-1].removesuffix("\n")


def _spaces(lines: Lines) -> None:
    lines[0] = json.dumps(json.loads(lines[0])) + "\n"


EDITS: dict[str, tuple[Callable[[Lines], None], str]] = {
    "verdict": (_verdict, "the counts are not those of the results"),
    "duplicate": (_duplicate, "appears twice"),
    "footer-cut": (_cut, "the footer is missing"),
    "footer-cut-inside": (_cut_inside, "not JSON"),
    "seconds": (_seconds, EDITED),
    "order": (_swap, EDITED),
    "footer-seconds": (_footer_seconds, EDITED),
    "no-digest": (_no_digest, "the footer has no digest"),
    "end-of-line": (_blank_end, EDITED),
    "spaces": (_spaces, EDITED),
}


@pytest.mark.parametrize(("edit", "reason"), EDITS.values(), ids=EDITS.keys())
def test_an_edited_report_is_refused_with_the_reason(
    report: Report,
    write_report: Callable[[Report], Path],
    edit: Callable[[Lines], None],
    reason: str,
) -> None:
    """What is wrong is named; an edit that is consistent in itself is found by the digest."""
    path = write_report(report)
    lines = path.read_text().splitlines(keepends=True)
    edit(lines)
    path.write_text("".join(lines))
    with pytest.raises(ReportError, match=reason):
        read_report(path)


@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_flipped_bit_is_refused(
    report: Report, write_report: Callable[[Report], Path], data: st.DataObject
) -> None:
    """A report of which one bit changed is refused, wherever the bit is."""
    path = write_report(report)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    with pytest.raises(ReportError):
        read_report(path)
