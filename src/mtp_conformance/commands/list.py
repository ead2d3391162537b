"""`mtp-conformance list`: every case with its metadata and number of cells."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from mtp_conformance.case import Registration
from mtp_conformance.commands import Subparsers
from mtp_conformance.explaining import cells_of
from mtp_conformance.plugin import PROFILES
from mtp_conformance.report import Record, case_record
from mtp_conformance.suite import SuiteError, case_file, load_cases, suite_root

_ENDLESS = 10_000


_EXAMPLES = """examples:
  mtp-conformance list
  mtp-conformance list --area rewind --profile full
  mtp-conformance list --json | jq -r '.cases[].id'
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "list",
        help="every case with its metadata and number of cells",
        description="List the cases of the suite.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with all metadata")
    parser.add_argument("--area", metavar="AREA", help="only cases whose id begins with AREA")
    parser.add_argument(
        "--profile", choices=PROFILES, default="default", help="which cells are counted (default)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List; returns 0, or 2 without a suite or for an area that does not exist."""
    try:
        cases = load_cases(suite_root())
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    areas = sorted({registration.case.area for registration in cases})
    if arguments.area is not None and arguments.area not in areas:
        print(f"error: no area {arguments.area}; there are {', '.join(areas)}", file=sys.stderr)
        return 2
    chosen = [r for r in cases if arguments.area in (None, r.case.area)]
    if arguments.json:
        records = [_record(registration, arguments.profile) for registration in chosen]
        print(json.dumps({"profile": arguments.profile, "cases": records}, indent=2))
    else:
        _print_table(chosen, arguments.profile)
    return 0


def _record(registration: Registration, profile: str) -> Record:
    record = case_record(registration.case)
    del record["type"]
    cells = len(cells_of(registration, profile))
    return record | {"cells": cells, "file": str(case_file(registration))}


def _print_table(registrations: Sequence[Registration], profile: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    if not console.is_terminal:  # a pipe has no width, so nothing is folded
        console = Console(highlight=False, width=_ENDLESS)
        table = Table(box=box.MARKDOWN)
    for name in ("case", "level", "clause", "needs", "faults"):
        table.add_column(name)
    table.add_column("cells", justify="right")
    total = 0
    for registration in registrations:
        case, cells = registration.case, len(cells_of(registration, profile))
        total += cells
        row = (case.id, str(case.level), case.clause, " ".join(case.needs), " ".join(case.faults))
        table.add_row(*map(Text, row), str(cells))
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n"))
    print(f"{len(registrations)} cases, {total} cells in profile {profile}")
