"""Running one command of `mtp-conformance` in this process."""

import argparse
from types import ModuleType


def run(command: ModuleType, *arguments: str) -> int:
    """Parse these arguments as the command line does; the command's exit code."""
    parser = argparse.ArgumentParser(prog="mtp-conformance")
    command.add_parser(parser.add_subparsers(required=True))
    parsed = parser.parse_args(arguments)
    return parsed.run(parsed)
