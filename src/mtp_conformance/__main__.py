"""`mtp-conformance`: judge MTP speculative decoders on MLX."""

from __future__ import annotations

import argparse
import os
import sys

from mtp_conformance.commands import diff, explain, faults, gate, golden, probe, report, run, smoke
from mtp_conformance.commands import list as list_
from mtp_conformance.failure import RuntimeFailure, RuntimeNameError, UsageError
from mtp_conformance.suite import SuiteError

_EXAMPLES = """examples:
  mtp-conformance smoke --runtime my_adapter:make_runtime
  mtp-conformance run --runtime my_adapter:make_runtime --out reports/mine
  mtp-conformance explain rewind.state.one-round
  mtp-conformance gate --model DIR --k 1,2,3

exit codes: 0 all required cases pass; 1 a failure; 2 usage, runtime or file error;
3 inconclusive
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="mtp-conformance",
        description="Conformance of multi-token-prediction speculative decoding on MLX.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (run, list_, explain, smoke, probe, gate, faults, golden, report, diff):
        command.add_parser(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns its exit code, 130 after Ctrl-C."""
    arguments = parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except (RuntimeFailure, RuntimeNameError, UsageError, SuiteError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
