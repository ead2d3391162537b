"""JUnit XML: one test suite an area, one test case a result, for CI systems that show tests.

How a verdict is told: fail, and xpass because a known-failure list is then wrong, are a
``failure``; error and inconclusive are an ``error``; unsupported and xfail are ``skipped``. A
near-tie of a required case is a ``failure`` of type near-tie, since CI systems show skipped tests
as harmless and a near-tie is never a pass; of a recommended case it is ``skipped``.
"""

import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from mtp_conformance.case import Case, Level
from mtp_conformance.report import Report, Result
from mtp_conformance.reporting.naming import area_of, cell_name, place_of, printable
from mtp_conformance.verdict import Verdict

_TAGS = {
    Verdict.FAIL: "failure",
    Verdict.XPASS: "failure",
    Verdict.ERROR: "error",
    Verdict.INCONCLUSIVE: "error",
    Verdict.UNSUPPORTED: "skipped",
    Verdict.XFAIL: "skipped",
}
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def render(report: Report) -> str:
    """The report as JUnit XML text."""
    cases = {case.id: case for case in report.cases}
    areas: dict[str, list[Result]] = defaultdict(list)
    for result in report.results:
        areas[area_of(result)].append(result)
    root = ET.Element("testsuites", name="MTP conformance")
    _count(root, report.results, cases)
    for area in sorted(areas):
        root.append(_suite(area, areas[area], cases))
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(area: str, results: Sequence[Result], cases: Mapping[str, Case]) -> ET.Element:
    suite = ET.Element("testsuite", name=area)
    _count(suite, results, cases)
    for result in results:
        name, area_and_property = cell_name(result), result.case.rpartition(".")[0]
        test = ET.SubElement(suite, "testcase", name=printable(name), classname=area_and_property)
        test.set("time", f"{result.seconds:.3f}")
        tag = _tag(result, cases[result.case])
        if tag is not None:
            test.append(_outcome(tag, result))
    return suite


def _tag(result: Result, case: Case) -> str | None:
    if result.verdict is Verdict.NEAR_TIE:
        return "failure" if case.level is Level.MUST else "skipped"
    return _TAGS.get(result.verdict)


def _outcome(tag: str, result: Result) -> ET.Element:
    known = result.verdict is Verdict.XFAIL  # why it may fail says more than how it does
    message = result.failure.message if result.failure and not known else result.reason or ""
    outcome = ET.Element(tag, message=printable(f"{result.verdict}: {_first_line(message)}"))
    if tag != "skipped":
        outcome.set("type", result.verdict.value)
    if result.failure is not None:
        place = place_of(result.failure)
        lines = [place, message, result.failure.command, result.failure.stderr or ""]
        outcome.text = printable("\n".join(line for line in lines if line))
    return outcome


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _count(element: ET.Element, results: Sequence[Result], cases: Mapping[str, Case]) -> None:
    tags = Counter(_tag(result, cases[result.case]) for result in results)
    element.set("tests", str(len(results)))
    for tag, attribute in _COUNTED.items():
        element.set(attribute, str(tags[tag]))
    element.set("time", f"{sum(result.seconds for result in results):.3f}")
