"""``mtp-conformance diff``: what changed between two reports."""

import argparse
import sys

from mtp_conformance.commands import Subparsers
from mtp_conformance.commands.report import report_path
from mtp_conformance.report import Report, ReportError, read_report

_EXAMPLES = """examples:
  mtp-conformance diff main/report.jsonl branch/report.jsonl
      name every verdict that changed, what got worse first, with its command
  mtp-conformance diff main branch --json
      the same for a machine; a folder stands for the report.jsonl in it
  mtp-conformance diff 0.1 0.2 --allow-manifest-change
      compare what both have although cases were added, removed or changed

exit status: 0 nothing got worse; 1 a verdict got worse, or a result is gone whose case is not;
2 a wrong argument, a report that is refused, or reports of two manifests
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``diff`` to the command line."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two reports",
        description="Name what changed from an old report to a new one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", metavar="OLD", help="the report to compare with")
    parser.add_argument("new", metavar="NEW", help="the report that may be better or worse")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--allow-manifest-change",
        action="store_true",
        help="compare reports whose cases are not the same",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; 1 if anything got worse, 2 if there is nothing to compare."""
    from mtp_conformance.reporting.diff import diff, render_json, render_text

    try:
        old, new = _read(arguments.old), _read(arguments.new)
        found = diff(old, new, allow_manifest_change=arguments.allow_manifest_change)
    except ReportError as error:
        print(f"mtp-conformance diff: {error}", file=sys.stderr)
        return 2
    print(render_json(found) if arguments.json else render_text(found), end="")
    return 1 if found.worse else 0


def _read(name: str) -> Report:
    path = report_path(name)
    try:
        return read_report(path)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
