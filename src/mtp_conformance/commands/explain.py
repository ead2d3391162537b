"""`mtp-conformance explain CASE`: what a case requires, why, and how to run one cell of it."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from mtp_conformance.case import Registration
from mtp_conformance.commands import Subparsers
from mtp_conformance.explaining import Explanation, explain, explain_case
from mtp_conformance.gate.checks import CHECKS
from mtp_conformance.report import Record, case_record
from mtp_conformance.suite import SuiteError, load_cases, suite_root
from mtp_conformance.toml_table import TomlError

_EXAMPLES = """examples:
  mtp-conformance explain rewind.state.one-round
  mtp-conformance explain rewind.state.one-round --json
"""
_WIDTH = 100
_GATE = "mtp-conformance gate --model DIR --k 1,2,3"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="what a case requires, why, which faults are behind it, how to run it",
        description="Explain a case: what it requires and why, and how to run one cell of it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", metavar="CASE", help="its id, as in `mtp-conformance list`")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain; returns 0, or 2 for an unknown case or a suite that cannot be read."""
    try:
        root = suite_root()
        cases = {registration.case.id: registration for registration in load_cases(root)}
        of_gate = {check.case.id: check.case for check in CHECKS}
        if arguments.case in of_gate:
            explanation = explain_case(root, of_gate[arguments.case], _GATE)
        elif arguments.case in cases:
            explanation = explain(root, cases[arguments.case])
        else:
            print(_unknown(arguments.case, cases), file=sys.stderr)
            return 2
    except (SuiteError, TomlError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(_json(explanation) if arguments.json else "\n".join(_lines(explanation)))
    return 0


def _unknown(id: str, cases: dict[str, Registration]) -> str:
    near = difflib.get_close_matches(id, cases, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "`mtp-conformance list` has all ids."
    return f"error: no case {id}; {hint}"


def _json(explanation: Explanation) -> str:
    record: Record = case_record(explanation.case)
    del record["type"]
    record["clause"] = asdict(explanation.clause)
    record["faults"] = [asdict(fault) for fault in explanation.faults]
    record["named_faults"] = list(explanation.case.faults)
    record["command"] = explanation.command
    return json.dumps(record, indent=2, ensure_ascii=False)


def _lines(explanation: Explanation) -> Iterator[str]:
    case, clause = explanation.case, explanation.clause
    yield case.id
    yield from _wrapped(case.summary, indent=2)
    yield ""
    yield from _field("clause", f"{clause.anchor} ({clause.level})")
    yield from _field("requires", clause.requirement)
    yield from _field("reason", clause.reason)
    yield from _field("oracle", case.oracle)
    yield from _field("witness", case.witness)
    yield from _field("needs", ", ".join(case.needs) or "nothing")
    yield from _field("since", case.since)
    yield ""
    yield from _fault_lines(explanation)
    yield "one cell of it:"
    yield f"  {explanation.command}"


def _fault_lines(explanation: Explanation) -> Iterator[str]:
    if not explanation.faults:
        yield "No fault is on record for it."
        yield ""
        return
    named: Sequence[str] = explanation.case.faults
    yield "faults that decoders had here" + (" (* named by the case itself):" if named else ":")
    for fault in explanation.faults:
        mark = "*" if fault.id in named else " "
        yield f" {mark}{fault.id} {fault.slug}"
        yield from _wrapped(fault.symptom, indent=6)
        if fault.id in named:
            yield from _wrapped(fault.cause, indent=6)
        yield from (f"      {source}" for source in fault.sources)
    yield ""


def _field(name: str, text: str) -> Iterator[str]:
    first, *rest = _wrapped(text, indent=12)
    yield f"  {name:<10}{first.strip()}"
    yield from rest


def _wrapped(text: str, indent: int) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(
        text, _WIDTH, initial_indent=blank, subsequent_indent=blank, break_long_words=False
    )
