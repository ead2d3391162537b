"""A badge: the JSON that shields.io's endpoint badge reads.

Its message is ``passed/total`` and the total counts every result, unsupported ones too: a runtime
that offers little has a small numerator, never a small denominator.
"""

import json

from mtp_conformance.report import Report
from mtp_conformance.reporting.severity import worst
from mtp_conformance.verdict import Verdict

_COLOURS = {
    Verdict.PASS: "brightgreen",
    Verdict.UNSUPPORTED: "yellowgreen",
    Verdict.XFAIL: "yellow",
    Verdict.NEAR_TIE: "yellow",
    Verdict.INCONCLUSIVE: "orange",
    Verdict.XPASS: "orange",
    Verdict.ERROR: "red",
    Verdict.FAIL: "red",
}


def render(report: Report) -> str:
    """The badge of a report as JSON text."""
    passed = report.counts.get(Verdict.PASS, 0)
    badge = {
        "schemaVersion": 1,
        "label": "MTP conformance",
        "message": f"{passed}/{len(report.results)}",
        "color": _COLOURS[worst(r.verdict for r in report.results)] if passed else "lightgrey",
    }
    return json.dumps(badge, indent=2) + "\n"
