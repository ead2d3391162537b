"""The commands of `mtp-conformance`, one a file: each has `add_parser` and `run`."""

import argparse
from typing import TypeAlias

# argparse has no public name for what `add_subparsers` returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]
