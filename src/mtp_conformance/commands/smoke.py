"""`mtp-conformance smoke`: is this adapter fit to be judged?"""

from __future__ import annotations

import argparse
import json

import mlx.core as mx

from mtp_conformance.commands import Subparsers
from mtp_conformance.commands.common import add_runtime_options, opened
from mtp_conformance.smoke import Status, smoke

_MARKS = {Status.OK: "ok         ", Status.WRONG: "WRONG      ", Status.NOT_OFFERED: "not offered"}
_EXAMPLES = """examples:
  mtp-conformance smoke --runtime my_adapter:make_runtime
  mtp-conformance smoke --runtime-cmd "python -m my_adapter" --model attn --json
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "smoke",
        help="check an adapter before anything is scored, and say what is wrong",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_runtime_options(parser)
    parser.add_argument("--model", default="gdn", help="zoo model to try (gdn)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print every check; returns 0 if none is wrong, else 2."""
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    with opened(arguments) as oracles:
        card = oracles.description
        if not arguments.json:
            print(f"{card.name}: {', '.join(sorted(c.value for c in card.capabilities))}")
        checks = []
        for check in smoke(oracles, arguments.model, arguments.dtype):
            checks.append(check)
            if not arguments.json:
                advice = f"  {check.advice}" if check.advice else ""
                print(f"{_MARKS[check.status]} {check.name}{advice}", flush=True)
    wrong = [check for check in checks if check.status is Status.WRONG]
    if arguments.json:
        rows = [{"name": c.name, "status": c.status.value, "advice": c.advice} for c in checks]
        print(json.dumps({"runtime": card.name, "checks": rows, "fit": not wrong}, indent=2))
    else:
        print("fit to be judged" if not wrong else f"{len(wrong)} to mend before judging")
    return 2 if wrong else 0
