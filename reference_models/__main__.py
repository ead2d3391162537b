"""`python -m reference_models`: list the zoo, or write one of its models to a folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mlx.core as mx

from reference_models.checkpoint import write_zoo
from reference_models.zoo import ZOO, parameters_of

_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference_models",
        description="The zoo of tiny hybrid models.",
        epilog="example: python -m reference_models write flash-next /tmp/flash-next",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names, layers and sizes")
    write = commands.add_parser("write", help="write a model as an ordinary checkpoint folder")
    write.add_argument("name", choices=list(ZOO))
    write.add_argument("folder", type=Path)
    write.add_argument("--dtype", choices=list(_DTYPES), default="float32")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "list":
        for name, config in ZOO.items():
            kinds = " ".join(kind.removesuffix("_attention") for kind in config.layer_types)
            print(f"{name:12} {parameters_of(config):>7} parameters  {kinds}")
        return 0
    print(write_zoo(arguments.name, arguments.folder, _DTYPES[arguments.dtype]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
