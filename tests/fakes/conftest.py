"""Oracles for a fake runtime."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance import Oracles
from mtp_conformance.adapters import builtin
from mtp_conformance.protocol import Runtime


@pytest.fixture
def oracles_of(tmp_path: Path) -> Callable[[Runtime], Oracles]:
    """From a runtime to oracles over the zoo."""
    return lambda runtime: Oracles(runtime, builtin.zoo_materials(tmp_path))
