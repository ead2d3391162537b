"""What another package's function reads from a checkpoint folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import cast

from mtp_decoder.errors import CheckpointError, DecoderError
from mtp_decoder.session import check_model
from mtp_decoder.target import Head, Target


def load_with(loader: str, folder: Path) -> tuple[Target, Head | None]:
    """Read a folder with `package.module:function`, which returns (target, head or None).

    The package may lie in the current folder, as with `python -m`.

    Raises:
        DecoderError: there is no such function, or what it returns is no target and head.
        CheckpointError: it cannot read the folder.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    module, _, function = loader.partition(":")
    try:
        read = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise DecoderError(f"--loader {loader}: {error}; give package.module:function") from error
    try:
        found: object = read(folder)
    except Exception as error:  # whatever a stranger's function raises
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"--loader {loader} cannot read {folder}: {what}") from error
    if not isinstance(found, tuple) or len(cast("tuple[object, ...]", found)) != 2:
        kind = type(cast("object", found)).__name__
        raise DecoderError(f"--loader {loader} returned a {kind}, not (target, head or None)")
    target, head = cast("tuple[Target, Head | None]", found)
    try:
        check_model(target, head)
    except DecoderError as error:
        raise DecoderError(f"--loader {loader} returned no (target, head): {error}") from error
    return target, head
