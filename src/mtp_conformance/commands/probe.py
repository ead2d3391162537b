"""`mtp-conformance probe`: what bit-exact can mean on this device."""

from __future__ import annotations

import argparse
import json

import mlx.core as mx
from rich.console import Console
from rich.table import Table

from mtp_conformance.commands import Subparsers
from mtp_conformance.commands.common import say
from mtp_conformance.probe import WIDTHS, Probe, run_probe

_MARKS = {True: "=", False: "differs", None: "-"}
_EXAMPLES = """examples:
  mtp-conformance probe
  mtp-conformance probe --device gpu --json
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "probe",
        help="per operation and width: does a block of rows give the bits of its rows?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="operation to width to equal or not")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the probe; returns 0, or 2 without the device asked for."""
    if arguments.device == "gpu" and not mx.is_available(mx.gpu):
        say("error: this mlx has no GPU backend; use --device cpu")
        return 2
    mx.set_default_device(mx.gpu if arguments.device == "gpu" else mx.cpu)
    quiet = arguments.quiet or arguments.json
    probe = run_probe(progress=lambda name: say(f"probing {name}", quiet=quiet))
    if arguments.json:
        record = {**probe.as_dict(), "fingerprint": probe.fingerprint, "row_exact": probe.row_exact}
        print(json.dumps(record, indent=2))
    else:
        _print_table(probe)
    return 0


def _print_table(probe: Probe) -> None:
    console = Console()
    table = Table("operation", *(str(width) for width in WIDTHS), box=None)
    for name, row in probe.equal.items():
        table.add_row(name, *(_MARKS[row[width]] for width in WIDTHS))
    console.print(table)
    answer = "every operation is row-exact" if probe.row_exact else "not every operation is"
    console.print(
        f"{probe.device}, mlx {probe.mlx}: {answer}; fingerprint {probe.fingerprint}\n"
        "= equal bits in every draw, - no such kernel here"
    )
