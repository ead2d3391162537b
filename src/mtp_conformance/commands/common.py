"""What several commands share: a runtime's options, plain or rich output."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from mtp_conformance.failure import UsageError
from mtp_conformance.oracles import Oracles
from mtp_conformance.process import ProcessRuntime, TimeLimits
from mtp_conformance.protocol import Runtime
from mtp_conformance.suite import suite_root


def add_runtime_options(parser: argparse.ArgumentParser, seconds: float = 60.0) -> None:
    """`--runtime`, `--runtime-cmd`, `--time-limit` with so many seconds as its default."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--runtime",
        metavar="NAME",
        default="builtin",
        help="builtin, or package.module:function of an adapter in process",
    )
    which.add_argument(
        "--runtime-cmd",
        metavar="COMMAND",
        help='an adapter in a process of its own, e.g. "python -m their.adapter"',
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=seconds,
        help=f"longest answer ({seconds:g})",
    )


@contextmanager
def opened(arguments: argparse.Namespace) -> Generator[Oracles]:
    """The oracles of the runtime the options name, over the zoo.

    Raises:
        RuntimeFailure: a process that cannot be talked to.
        RuntimeNameError: no such adapter.
    """
    sys.path.insert(0, str(suite_root()))  # for reference_models
    from mtp_conformance.adapters import builtin  # brings mlx-lm, which takes a second or two

    with (
        running(arguments) as runtime,
        tempfile.TemporaryDirectory(prefix="mtp-zoo-") as folder,
    ):
        materials = builtin.zoo_materials(Path(folder))
        yield Oracles(runtime, materials, row_exact=getattr(arguments, "row_exact", False))


@contextmanager
def running(
    arguments: argparse.Namespace, make: Callable[[], Runtime] | None = None
) -> Generator[Runtime]:
    """The runtime the options name; its process ends with this.

    Args:
        arguments: with the options of `add_runtime_options`.
        make: makes the runtime, in place of `--runtime`.

    Raises:
        RuntimeFailure: a process that cannot be talked to.
        RuntimeNameError: no such adapter.
    """
    from mtp_conformance.fixtures import load_runtime

    if not 0 < arguments.time_limit < float("inf"):
        raise UsageError(f"--time-limit {arguments.time_limit:g}: give seconds above 0")
    limits = TimeLimits(open=5 * arguments.time_limit, call=arguments.time_limit)
    if arguments.runtime_cmd is None:
        yield load_runtime(arguments.runtime) if make is None else make()
        return
    process = ProcessRuntime(arguments.runtime_cmd, limits, getattr(arguments, "device", "cpu"))
    try:
        yield process
    finally:
        process.close()


def say(text: str, *, quiet: bool = False) -> None:
    """A line of progress, on stderr, so that stdout stays for results."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)
