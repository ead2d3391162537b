"""What a case receives: the oracles of the runtime under judgement."""

from __future__ import annotations

import importlib
from typing import cast

import pytest

from mtp_conformance.adapters import builtin
from mtp_conformance.oracles import Oracles
from mtp_conformance.plugin import describe_runtime
from mtp_conformance.protocol import Runtime

_PROMPT_TOKENS = 64


def load_runtime(name: str) -> Runtime:
    """The runtime `builtin`, or the one a factory `package.module:function` makes.

    Raises:
        pytest.UsageError: no such module or function; says which.
    """
    if name == "builtin":
        return builtin.make_runtime()
    module, _, function = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(
            f"--runtime {name}: {error}; give `builtin` or `package.module:function`"
        ) from error
    return cast("Runtime", factory())


@pytest.fixture(scope="session")
def oracles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracles:
    """Shared prefills and expected values of the runtime under judgement."""
    runtime = load_runtime(cast("str", request.config.getoption("runtime")))
    folder = tmp_path_factory.mktemp("checkpoints")
    found = Oracles(runtime, folder, builtin.prompt(_PROMPT_TOKENS), builtin.index_gap)
    card = found.description
    describe_runtime(
        request.config,
        {
            "name": card.name,
            "versions": dict(card.versions),
            "capabilities": sorted(c.value for c in card.capabilities),
            "strategies": list(card.strategies),
            "max_draft_tokens": card.max_draft_tokens,
            "mx_compile": request.config.getoption("mx_compile"),
        },
    )
    return found
