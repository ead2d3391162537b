"""What a case receives: the oracles of the runtime under judgement."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from mtp_conformance.adapters import builtin
from mtp_conformance.failure import RuntimeFailure, RuntimeNameError
from mtp_conformance.oracles import Oracles
from mtp_conformance.plugin import describe_runtime
from mtp_conformance.process import ProcessRuntime, TimeLimits
from mtp_conformance.protocol import Description, Runtime

OPEN_FACTOR = 5
"""How much longer than any other answer opening a model may take."""


def load_runtime(name: str) -> Runtime:
    """Make the runtime `builtin`, or the one of a factory `package.module:function`.

    Raises:
        RuntimeNameError: no such module or function.
    """
    if name == "builtin":
        return builtin.make_runtime()
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise RuntimeNameError(f"--runtime {name}: give `builtin` or `package.module:function`")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # an adapter beside the user, as with python -m
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise RuntimeNameError(
            f"--runtime {name}: {error}; give `builtin` or `package.module:function`"
        ) from error
    return cast("Runtime", factory())


def card_of(description: Description) -> dict[str, object]:
    """Turn a runtime's description into what stands in the report's header."""
    return {
        "name": description.name,
        "versions": dict(description.versions),
        "capabilities": sorted(c.value for c in description.capabilities),
        "strategies": list(description.strategies),
        "head_rows": list(description.head_rows),
        "max_draft_tokens": description.max_draft_tokens,
        "after_stop": description.after_stop,
        "notes": dict(description.notes),
    }


@pytest.fixture(scope="session")
def profile(request: pytest.FixtureRequest) -> str:
    """How far a case that searches is to search."""
    return cast("str", request.config.getoption("profile"))


@pytest.fixture(scope="session")
def oracles(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Oracles]:
    """Shared prefills and expected values of the runtime under judgement."""
    config = request.config
    command = cast("str | None", config.getoption("runtime_cmd"))
    process = None
    if command is None:
        try:
            runtime = load_runtime(cast("str", config.getoption("runtime")))
        except RuntimeNameError as error:
            pytest.exit(str(error), returncode=2)
    else:
        seconds = cast("float", config.getoption("time_limit"))
        limits = TimeLimits(open=OPEN_FACTOR * seconds, call=seconds)
        runtime = process = ProcessRuntime(command, limits, cast("str", config.getoption("device")))
    try:
        folder = tmp_path_factory.mktemp("checkpoints")
        materials = builtin.zoo_materials(folder, cast("int", config.getoption("seed")))
        row_exact = cast("bool", config.getoption("row_exact"))
        found = Oracles(runtime, materials, row_exact=row_exact)
    except RuntimeFailure as error:
        given = config.getoption("runtime") if command is None else command
        option = "--runtime" if command is None else "--runtime-cmd"
        pytest.exit(f"{option} {given}: {error}", returncode=2)
    compiles = config.getoption("mx_compile") if process is None else "as its process decides"
    card = {**card_of(found.description), "mx_compile": compiles, "row_exact": row_exact}
    describe_runtime(config, card)
    yield found
    if process is not None:
        process.close()
