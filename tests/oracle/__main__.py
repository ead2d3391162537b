# pyright: reportMissingImports=false
# (PyTorch is in the oracle's environment alone)
"""`python -m tests.oracle`: run transformers on the zoo, and compare or store what it computes."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

from tests.oracle.models import MODELS

_EPILOG = """examples:
  python -m tests.oracle                   compare every model with what is stored; 1 if one differs
  python -m tests.oracle gdn flash-next    these alone
  python -m tests.oracle --write           run everything, store golden/oracle, write docs/oracle.md
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle",
        description="Run Hugging Face transformers in float64 on the zoo's checkpoints and compare "
        "the reference models and mlx-lm's classes with it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", help="names of models; all of them if none")
    parser.add_argument("--write", action="store_true", help="store what was computed, all models")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.models if name not in MODELS]
    if unknown:
        parser.error(f"the oracle has no {', '.join(unknown)}; it has {', '.join(MODELS)}")
    if arguments.write and arguments.models:
        parser.error("--write stores all models; name none")
    try:
        quiet()
    except ModuleNotFoundError as error:
        parser.error(f"{error}; `python3 noxfile.py -s oracle` runs this where PyTorch is")
    from tests.oracle import working

    with tempfile.TemporaryDirectory() as folder:
        if arguments.write:
            return working.write(Path(folder), _versions())
        return working.check(arguments.models or list(MODELS), Path(folder))


def quiet() -> None:
    """Say nothing about kernels that are not installed; one thread is fastest for tiny models."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore", module="transformers")
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)


def _versions() -> dict[str, str]:
    names = ("torch", "transformers", "mlx", "mlx-lm", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; what is stored is as it was", file=sys.stderr)
        sys.exit(130)
