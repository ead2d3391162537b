"""`mtp-conformance faults`: which cases notice which fault of the decoder.

The faults are edits to this project's own decoder and lie with its tests, which the harness does
not import: they run as a program of their own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from mtp_conformance.commands import Subparsers
from mtp_conformance.failure import UsageError
from mtp_conformance.suite import suite_root

_EXAMPLES = """examples:
  mtp-conformance faults
  mtp-conformance faults --smoke
  mtp-conformance faults --only R13 --json | jq '.faults[].by'

exit codes: 0 every fault is killed by a case of what it breaks, and nothing else is;
1 a survivor, or a false alarm; 2 a wrong argument, or no checkout
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "faults",
        help="seed faults into the decoder and see which cases notice",
        description="Make the kill matrix: every seeded fault and the cases that notice it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one fault a kind, to its first kill")
    parser.add_argument(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="a seeded fault, or all of a public one; may be repeated",
    )
    parser.add_argument("-n", "--workers", type=int, metavar="N", help="processes (one a core)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where faults.json goes")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the faults of the checkout; returns their exit code.

    Raises:
        UsageError: the suite at hand is an installed one, without the project's tests.
    """
    root = suite_root()
    if not (root / "tests" / "faults" / "__main__.py").is_file():
        raise UsageError(
            f"{root} has no tests/faults: seeded faults are edits to this project's own decoder, "
            "and run in its checkout"
        )
    options = [f"--{name}" for name in ("json", "smoke", "quiet") if getattr(arguments, name)]
    for id in arguments.only:
        options += ["--only", id]
    if arguments.workers is not None:
        options += ["--workers", str(arguments.workers)]
    if arguments.out is not None:
        options += ["--out", str(arguments.out.resolve())]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "tests.faults", *options]
    return subprocess.call(command, cwd=root, env=environment)
